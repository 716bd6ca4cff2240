"""From the operator's configuration to the settings of each part; no part sees another's.

What lives here: names translated. What does not: checks (``config``).
"""

from __future__ import annotations

from ipaddress import ip_address

from gossipd import __version__
from gossipd.config.keys import Keys
from gossipd.config.prints import prints_of
from gossipd.config.sections import Config
from gossipd.control.settings import ControlSettings
from gossipd.core.dscp import parse_dscp
from gossipd.core.limit_schedule import parse_entry
from gossipd.deployment.source_budget import SourceBudget
from gossipd.inbox.inbox import InboxSettings
from gossipd.sources.settings import SourceSettings
from gossipd.store.disk.file_system import tells_changes
from gossipd.store.settings import PageCache, StoreSettings
from gossipd.swarm.capabilities import NodeCapabilities
from gossipd.transfer.settings import BulkSettings, Encryption
from membership.member import Record
from membership.settings import SwimSettings


def swim_settings(config: Config) -> SwimSettings:
    """How failures are noticed."""
    section = config.membership
    return SwimSettings(
        probe_interval_s=section.probe_interval_s,
        probe_on_clock=True,  # trio begins its clock anywhere
        probe_timeout_s=section.probe_timeout_s,
        suspicion_base_s=section.suspicion_base_s,
        roster_keep_s=section.roster_keep_s,
    )


def inbox_settings(config: Config) -> InboxSettings:
    """How often the inbox is looked at: seldom where the kernel tells what changes there."""
    return InboxSettings(watched_rescan_s=30.0) if tells_changes(config.store.inbox) else InboxSettings()


def store_settings(config: Config) -> StoreSettings:
    """Where models live."""
    section = config.store
    return StoreSettings(
        keep_versions=section.keep_versions,
        reserve_bytes=section.reserve_bytes,
        page_cache=PageCache(section.page_cache),
        scrub_bytes_per_s=section.scrub_bytes_per_s,
        warm=section.warm,
        warm_bytes_per_s=section.warm_bytes_per_s,
    )


def bulk_settings(config: Config) -> BulkSettings:
    """The path of model bytes."""
    limits = config.limits
    return BulkSettings(
        encryption=Encryption(config.bulk.encryption),
        slots=limits.upload_slots,
        slots_per_peer=min(4, limits.upload_slots),
        connections_in_max=limits.connections,
        dscp=parse_dscp(config.net.dscp_bulk),
    )


def bulk_interface_address(config: Config) -> str:
    """An address of the interface over which model bytes go."""
    bound = ip_address(config.bulk_address[0])
    return config.advertised if bound.is_unspecified else str(bound)


def control_settings(config: Config) -> ControlSettings:
    """The control port."""
    return ControlSettings(dscp=parse_dscp(config.net.dscp_control))


def source_settings(config: Config) -> SourceSettings:
    """External storage."""
    return SourceSettings(read_timeout_s=config.sources.timeout_s, connections=config.sources.connections)


def source_budget(config: Config) -> SourceBudget:
    """What may be read of one deployment."""
    section = config.sources
    return SourceBudget(section.budget_bytes, section.budget_money, section.money_per_gb)


def may_read_extra(config: Config) -> bool:
    """Whether this host may read storage beside the seeds: not where its reads are limited at some hour, because that
    limit was reckoned for as many hosts as there are seeds."""
    limits = config.limits
    by_hour = (limit for text in limits.schedule for limit in parse_entry(text).bytes_per_s)
    return not limits.source_bytes_per_s and not any(name == "source" and rate for name, rate in by_hour)


def capabilities(config: Config, keys: Keys, *, seed_term: int = 0, free_step: int = 0) -> NodeCapabilities:
    """What we say of ourselves."""
    return NodeCapabilities(
        config.sources.enabled, seed_term, config.bulk.encryption == "none", signs_progress=True,
        prints=prints_of(config, keys), free_step=free_step,
    )  # fmt: skip


def own_record(config: Config, keys: Keys, boot: int) -> Record:
    """Our member record, unsigned."""
    public = keys.node.public
    return Record(
        public_key=public.ed25519, boot=boot, version=1, name=config.node.name, rack=config.node.rack,
        zone=config.node.zone, host=config.advertised, port=config.net.port, bulk_port=config.bulk_address[1],
        transport_key=public.curve25519, capacity=0, software=__version__,
        payload=capabilities(config, keys).to_bytes(),
    )  # fmt: skip
