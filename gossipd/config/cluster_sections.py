"""Settings by which a host belongs to its cluster: its name and rack, addresses, keys, encryption, failure detection.

What lives here: the sections ``[node]``, ``[net]``, ``[security]``, ``[bulk]`` and ``[membership]``. What does not:
what the daemon does with them (``daemon.settings_mapping``), and the other sections (``sections`` names them).
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

from msgspec.structs import replace

from gossipd.config import kinds
from gossipd.config.section import Section
from gossipd.config.setting import PATH, check_label_within, setting
from gossipd.core.dscp import parse_dscp
from gossipd.identity.cancel_rights import DEFAULT_ROLES, ROLES

_NAME = kinds.Text("a name of letters, digits, '.', '_' and '-', at most 64", partial(check_label_within, chars_max=64))

_PLACE = kinds.Text(
    "a name of letters, digits, '.', '_' and '-', at most 32", partial(check_label_within, chars_max=32)
)


def _check_role(text: str) -> None:
    if text not in ROLES:
        raise ValueError(f"{text[:80]!r} must be one of {', '.join(ROLES)}")


class NodeSection(Section, frozen=True, kw_only=True):
    """This host: its name and its place."""

    name: str = setting(_NAME, "This host's name, unique in the cluster. Status and targets use it.")
    rack: str = setting(
        _PLACE, "Hosts with the same rack share a switch: they fetch from each other first, and elect a seed."
    )
    zone: str = setting(
        replace(_PLACE, wanted="a name as a rack's, or empty", may_be_empty=True),
        "A group of racks, or empty. Between racks, those of the same zone are preferred.",
        "",
    )
    rack_file: str = setting(
        replace(PATH, may_be_empty=True),
        "A file with a line for each host, its name and its rack, as one for all hosts of a cluster. Where this host\n"
        "has a line there, that is its rack, from the daemon's next start on; else it is node.rack. Empty: none.",
        "",
    )


class NetSection(Section, frozen=True, kw_only=True):
    """Addresses and ports. Every member must reach every other's two ports."""

    bind: str = setting(kinds.Text("an IP address", kinds.check_address), "Address to listen on; 0.0.0.0 or :: is all.")
    port: int = setting(
        kinds.Whole(1, 65_535), "Port for TCP (control) and UDP (membership), open between all members.", 7946
    )
    advertise: str = setting(
        kinds.Text("an IP address", kinds.check_address, may_be_empty=True),
        "Address that other hosts dial; empty is bind. Must be set when bind is 0.0.0.0 or ::.",
        "",
    )
    bulk_bind: str = setting(
        kinds.Text("an IP address", kinds.check_address, may_be_empty=True),
        "Address that serves model bytes; empty is bind. Set it to keep bulk traffic on its own interface.",
        "",
    )
    bulk_port: int = setting(kinds.Whole(0, 65_535), "TCP port that serves model bytes; 0 is port + 1.", 0)
    join: tuple[str, ...] = setting(
        kinds.Texts(kinds.Text("HOST:PORT", kinds.split_contact)),
        "Some members, as HOST:PORT. One that answers is enough; three survive the failure of one. Empty: this host\n"
        "waits for others to find it. Members met before are remembered too.",
        (),
        reload=True,
    )
    dscp_bulk: str = setting(
        kinds.Text("a DSCP such as cs1 or le, or a number from 0 to 63", parse_dscp),
        "DSCP mark of model bytes, for switches that are set up for it: le or cs1 yield to everything. cs0 is none,\n"
        "because a switch may give a marked class too little to ever end. gossipd 0.1 does not know it.",
        "cs0",
    )
    dscp_control: str = setting(
        kinds.Text("a DSCP such as cs2 or af21, or a number from 0 to 63", parse_dscp),
        "DSCP mark of membership and control; cs0 is none. gossipd 0.1 does not know it.",
        "cs0",
    )
    background: bool = setting(
        kinds.Flag(),
        "true: while others use this host's link, model bytes keep to less than half of what those leave, in both\n"
        "directions, reads of web storage included; else they take all of it. gossipd 0.1 does not know it.",
        False,
    )


class SecuritySection(Section, frozen=True, kw_only=True):
    """Keys: who may join, who may publish, who may trigger."""

    cluster_key: Path = setting(
        PATH,
        "The secret that all hosts share: a host that holds it is a member. Must be 0600. SIGHUP reads new keys.",
        "cluster.key",
    )
    node_key: Path = setting(
        PATH, "This host's own key, made by gossipd init; it is the host's identity. Must be 0600.", "node.key"
    )
    trust: tuple[Path, ...] = setting(
        kinds.Texts(PATH),
        "Public keys (.pub) of publishers: only models signed by one of these are accepted. Empty: no model is. A\n"
        "directory stands for each .pub file in it, now and at each reload.",
        (),
        reload=True,
    )
    trust_names: tuple[tuple[str, tuple[str, ...]], ...] = setting(
        kinds.Table(
            kinds.Text("a file of security.trust", kinds.check_path),
            kinds.Text('a pattern of model names, such as "prod/*"'),
        ),
        'Names that a trusted key may sign, such as {"trust/training.pub" = ["train/*"]}; a key that is not listed\n'
        "may sign all. * stands for any characters. Every host needs the same table. gossipd 0.1 does not know it.",
        (),
        reload=True,
    )
    clients: tuple[Path, ...] = setting(
        kinds.Texts(PATH),
        "Public keys (.pub) that may use gossipd trigger against this host, and whose statements it believes. Every\n"
        "host needs the same list: a host that lacks a key ignores its commands. A directory stands for each .pub\n"
        "file in it.",
        (),
        reload=True,
    )
    may_cancel: tuple[str, ...] = setting(
        kinds.Texts(kinds.Text("a role: publisher, client, deployer or member", _check_role)),
        'Whose cancel this host obeys: "publisher", who signed the model; "client", of the list above; "deployer",\n'
        'the host or client that alone has deployed it; "member", any host. Every host needs the same list.',
        DEFAULT_ROLES,
        reload=True,
    )


class BulkSection(Section, frozen=True, kw_only=True):
    """The path of model bytes."""

    encryption: str = setting(
        kinds.Choice(("tls", "none")),
        '"tls": nobody on the network sees the model; costs about a core per GB/s at each end. "none": faster; bytes\n'
        "are still checked and one-time tokens keep strangers out, but others can read the bytes on the way. All\n"
        "hosts must have the same value.",
        "tls",
    )


class MembershipSection(Section, frozen=True, kw_only=True):
    """How failures are detected. The same on all hosts; the defaults fit one data centre up to 1,000 hosts."""

    probe_interval_s: float = setting(
        kinds.Seconds(0.1, 60),
        "One member is probed each interval. Shorter: finds failures sooner, for more traffic (440 B/s at 500ms).",
        0.5,
    )
    probe_timeout_s: float = setting(
        kinds.Seconds(0.02, 10), "Time until other hosts are asked to probe too. Under half the interval.", 0.2
    )
    suspicion_base_s: float = setting(
        kinds.Seconds(0.2, 120),
        "Time for a suspect to answer, plus 0.8 s per factor of ten in hosts. Longer: fewer false alarms.",
        1.5,
    )
    roster_keep_s: float = setting(
        kinds.Seconds(60, 3650 * 86400), "How long a host that is down still counts among the targets.", 14 * 86400.0
    )
