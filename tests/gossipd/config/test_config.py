"""The configuration: every setting read and checked, every problem named at once, the example kept true."""

from __future__ import annotations

import os
import tomllib
from pathlib import Path
from random import Random

import pytest

from gossipd.config.changes import diff
from gossipd.config.directory import example_text
from gossipd.config.environment import VALUE_CHARACTERS_MAX
from gossipd.config.keys import Keys, key_changes, read_keys
from gossipd.config.load import FILE_BYTES_MAX, ConfigError, load_config, parse_config
from gossipd.config.sections import SECTIONS, Config
from gossipd.config.template import render_config, toml_value
from gossipd.core.errors import ExitCode
from gossipd.identity.cluster_key import new_key_ring
from gossipd.identity.key_files import write_key_pair, write_key_ring
from gossipd.identity.keys import SecretKey
from gossipd.identity.trust import key_id
from membership.seal import KeyRing
from tests.e2e.cluster import set_up

ROOT = Path(__file__).resolve().parents[3]
FILE = Path("/srv/gossipd/gossipd.toml")
LEAST = '[node]\nname = "a"\nrack = "r"\n[net]\nbind = "10.0.0.1"\n'


def parse(text: str = "", **environment: str) -> Config:
    return parse_config(LEAST + text, FILE, environment)


def problems(text: str, **environment: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        parse_config(text, FILE, environment)
    assert caught.value.code == "E_CONFIG"
    assert caught.value.exit_code is ExitCode.USAGE
    return [str(problem) for problem in caught.value.problems]


def test_the_example_is_what_init_writes() -> None:
    assert (ROOT / "config" / "gossipd.toml").read_text() == example_text()


def test_the_example_is_a_valid_configuration() -> None:
    config = load_config(ROOT / "config" / "gossipd.toml", {})
    assert config.net.port == 7946
    assert config.security.trust == (ROOT / "config" / "trust" / "publisher.key.pub",)


def test_the_systemd_unit_does_not_restart_what_an_operator_must_correct() -> None:
    lines = (ROOT / "gossipd" / "assets" / "gossipd.service").read_text().splitlines()
    assert f"RestartPreventExitStatus={ExitCode.USAGE.value} {ExitCode.TRUST.value}" in lines
    for needed in ("Type=notify", "NoNewPrivileges=yes", "LimitNOFILE=1048576"):
        assert needed in lines


def test_every_setting_is_in_the_example_with_a_comment_and_its_default() -> None:
    text = example_text()
    for name, section in SECTIONS.items():
        assert f"\n[{name}]\n" in text
        for item in section.settings:
            assert f"\n{item.name} = " in text or f"\n#{item.name} = " in text
            assert len(item.comment) > 20


def test_what_is_commented_out_in_the_example_are_the_defaults() -> None:
    lines = example_text().splitlines()
    uncommented = [
        line[1:] if line.startswith("#") and line[1:2].isalpha() and " = " in line else line for line in lines
    ]
    assert tomllib.loads("\n".join(uncommented))
    spelled_out = parse_config("\n".join(uncommented), FILE, {})
    assert spelled_out == parse_config(example_text(), FILE, {})


def test_names_of_numbers_end_in_their_unit() -> None:
    for section in SECTIONS.values():
        for item in section.settings:
            kind = type(item.kind).__name__
            suffix = {"Size": ("_bytes", "_bytes_per_s"), "Seconds": ("_s",)}.get(kind)
            assert suffix is None or item.name.endswith(suffix), item.name


def test_defaults_fill_what_is_not_said() -> None:
    config = parse()
    assert config.advertised == "10.0.0.1"
    assert config.bulk_address == ("10.0.0.1", 7947)
    assert config.store.keep_versions == 2
    assert config.bulk.encryption == "tls"
    assert config.limits.upload_bytes_per_s == 0


def test_paths_are_relative_to_the_file() -> None:
    config = parse(
        '[store]\nmodels = "../data"\n[status]\nsocket = "/run/g.sock"\n[security]\ntrust = ["a.pub", "/b.pub"]\n'
    )
    assert config.store.models == Path("/srv/data")
    assert config.store.inbox == Path("/srv/gossipd/inbox")
    assert config.status.socket == Path("/run/g.sock")
    assert config.security.trust == (Path("/srv/gossipd/a.pub"), Path("/b.pub"))
    assert config.security.cluster_key == Path("/srv/gossipd/cluster.key")


def test_keys_that_systemd_hands_are_taken_where_the_file_has_none(tmp_path: Path) -> None:
    home, handed = tmp_path / "home", tmp_path / "handed"
    home.mkdir()
    handed.mkdir()
    set_up("init", home / "h", "--name", "h", "--rack", "r", "--bind", "127.0.0.1", "--port", "7946")
    file, environment = home / "h" / "gossipd.toml", {"CREDENTIALS_DIRECTORY": str(handed)}
    own = load_config(file, environment).security
    assert own.cluster_key == file.parent / "cluster.key"
    (file.parent / "cluster.key").rename(handed / "gossipd.cluster.key")
    found = load_config(file, environment)
    assert found.security.cluster_key == handed / "gossipd.cluster.key"
    assert found.security.node_key == own.node_key, "which nobody hands"
    assert read_keys(found).cluster.cluster_id
    assert load_config(file, {}).security == own
    assert load_config(file, {"CREDENTIALS_DIRECTORY": str(home)}).security == own, "the sentence names the file's"


def test_tables_of_watched_directories_are_read_shown_and_read_again() -> None:
    keys = '[publish]\nkeys = ["/k"]\nusers = {"eve" = ["e/*"]}\n'
    least = f'{keys}[[publish.watch]]\ndirectory = "run"\nname = "train/run"\n'
    config = parse(
        f'{least}[[publish.watch]]\ndirectory = "/b"\nname = "b"\nuser = "7"\nkeep_last = 3\nkeep_every = 10\n'
        'exclude = ["*.pt"]\n'
    )
    first, second = config.publish.watch
    assert (first.directory, first.name, first.user, first.pattern) == ("/srv/gossipd/run", "train/run", "", "*")
    assert (second.directory, second.user, second.keep_last, second.keep_every) == ("/b", "7", 3, 10)
    assert (first.exclude, second.exclude) == ((), ("*.pt",))
    shown_again = "[publish]\n" + "".join(
        f"{item.name} = {toml_value(item, getattr(config.publish, item.name))}\n" for item in config.publish.settings
    )
    assert parse(shown_again).publish == config.publish
    assert parse(least, GOSSIPD_PUBLISH__WATCH="[]").publish.watch == ()
    assert [change.key for change in diff(parse(least), config)[0]] == ["publish.watch"]


@pytest.mark.parametrize(
    ("tables", "reason"),
    [
        ("watch = 7", "must be tables [[publish.watch]] with directory, name, user"),
        (
            '[[publish.watch]]\nname = "m"\ndirectory = "r"\nexclude = ["/r/*"]',
            "table 1: exclude entry 1: '/r/*' matches",
        ),
        ('[[publish.watch]]\nname = "m"', "table 1: directory is missing: a path"),
        (
            '[[publish.watch]]\ndirectory = "d"\nname = "m"\nmarker = "../x"',
            "table 1: marker '../x' must be a path below",
        ),
        ('[[publish.watch]]\ndirectory = "d"\nname = "a@b"', "table 1: name name"),
        ('[[publish.watch]]\ndirectory = "d"\nname = "m"\nkeep = 3', "table 1: keep is not a setting, of directory"),
        ('[[publish.watch]]\ndirectory = "d"\nname = "m"\nkeep_every = 3', "table 1: keep_every goes with keep_last"),
        ('[[publish.watch]]\ndirectory = "d"\nname = "m"\n' * 2, "table 2: m is watched twice"),
    ],
)
def test_a_wrong_table_is_named_with_its_line(tables: str, reason: str) -> None:
    (problem,) = problems(f'{LEAST}[publish]\nkeys = ["k"]\n{tables}\n')
    assert problem.startswith(f"{FILE}:8: publish.watch {reason}"), problem


def test_wants_that_are_too_long_together_are_refused_before_the_daemon_starts() -> None:
    terms = ", ".join(f'"files:{number}-{"x" * 100}"' for number in range(800))
    (problem,) = problems(f'{LEAST}[parts]\nwants = {{"m" = [{terms}]}}\n')
    assert "a want has over 65536 bytes" in problem


def test_watching_needs_a_key_to_sign_with() -> None:
    (problem,) = problems(f'{LEAST}[[publish.watch]]\ndirectory = "d"\nname = "m"\n')
    assert "needs publish.keys" in problem


def test_a_directory_stands_for_the_file_that_init_makes_in_it(tmp_path: Path) -> None:
    (tmp_path / "gossipd.toml").write_text((ROOT / "config" / "gossipd.toml").read_text())
    assert load_config(tmp_path, {}).file == tmp_path / "gossipd.toml"


def test_a_file_that_everybody_may_change_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "gossipd.toml"
    path.write_text((ROOT / "config" / "gossipd.toml").read_text())
    path.chmod(0o664)
    load_config(path, {})
    path.chmod(0o666)
    with pytest.raises(ConfigError, match="may be changed by every user; chmod o-w it"):
        load_config(path, {})


def test_sizes_and_times_take_units() -> None:
    config = parse(
        '[limits]\nupload_bytes_per_s = "1.5MiB"\npool_bytes = 134217728\n[membership]\nroster_keep_s = "2d"\n'
    )
    assert config.limits.upload_bytes_per_s == 1_572_864
    assert config.limits.pool_bytes == 128 * 1024**2
    assert config.membership.roster_keep_s == 172_800.0


def test_a_rendered_configuration_reads_back() -> None:
    values: dict[str, dict[str, object]] = {
        "node": {"name": "a", "rack": "r", "zone": "z"},
        "net": {"bind": "::1", "port": 9, "join": ("[::1]:1", "h:2")},
        "limits": {"pool_bytes": 64 * 1024**2, "source_bytes_per_s": 1000},
        "membership": {"suspicion_base_s": 2.25},
        "sources": {"enabled": False, "allow": ()},
    }
    config = parse_config(render_config(values), FILE, {})
    assert (config.node.zone, config.net.join, config.net.port) == ("z", ("[::1]:1", "h:2"), 9)
    assert (config.limits.pool_bytes, config.limits.source_bytes_per_s) == (64 * 1024**2, 1000)
    assert (config.membership.suspicion_base_s, config.sources.enabled, config.sources.allow) == (2.25, False, ())


def test_all_problems_are_named_at_once_with_file_line_key_and_reason() -> None:
    text = '[node]\nname = "a b"\n[net]\nbind = "10.0.0.1"\nprot = 1\nport = 65536\n'
    text += "[limit]\nx = 1\n[store]\nkeep_versions = -1\n"
    found = problems(text)
    assert found == [
        "/srv/gossipd/gossipd.toml:2: node.name 'a b' must be 1 to 64 of letters, digits, '.', '_' and '-', "
        "beginning with a letter, a digit or '_'",
        "/srv/gossipd/gossipd.toml:1: node.rack is missing: a name of letters, digits, '.', '_' and '-', at most 32",
        "/srv/gossipd/gossipd.toml:5: net.prot is not a setting; did you mean port?",
        "/srv/gossipd/gossipd.toml:6: net.port is 65536, must be a whole number from 1 to 65535",
        "/srv/gossipd/gossipd.toml:10: store.keep_versions is -1, must be a whole number from 1 to 1000",
        "/srv/gossipd/gossipd.toml:7: limit is not a section; did you mean limits?",
    ]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("[net]\nport = 0", "1 to 65535"),
        ('[net]\nport = "7946"', "must be a whole number"),
        ("[net]\nport = true", "must be a whole number"),
        ("[net]\nport = 1.5", "must be a whole number"),
        ('[net]\nbind = "10.0.0.1:7946"', "without a port"),
        ('[net]\njoin = "a:1"', "must be a list"),
        ('[net]\njoin = ["a:1", "a"]', "entry 2: must be HOST:PORT"),
        ('[net]\njoin = ["a:0"]', "entry 1"),
        ('[net]\njoin = ["gpu-2.example..:7946"]', "a host name"),
        ('[net]\njoin = ["::1:7946"]', "in brackets"),
        ('[net]\njoin = ["a:1", "a:1"]', "twice"),
        ('[net]\ndscp_bulk = "cs9"', "'cs9' must be cs0 to cs7, le, af11 to af43"),
        ("[net]\ndscp_control = 8", "in quotes"),
        ('[net]\nbackground = "yes"', "true or false"),
        ('[bulk]\nencryption = "off"', '"tls" or "none"'),
        ('[store]\nreserve_bytes = "12 parsecs"', "is not a size"),
        ("[store]\nreserve_bytes = -1", "must be a size"),
        ('[store]\nscrub_bytes_per_s = "2TiB"', "from 0 to 1TiB"),
        ('[membership]\nprobe_interval_s = "5 fortnights"', "is not a duration"),
        ("[membership]\nprobe_interval_s = nan", "must be a time"),
        ("[membership]\nprobe_interval_s = inf", "must be a time"),
        ("[membership]\nprobe_interval_s = 0", "from 100ms to 1m"),
        ('[sources]\nenabled = "yes"', "true or false"),
        ('[sources]\nallow = ["file"]', "entry 1"),
        ('[store]\nmodels = ""', "must be a path"),
        ('[store]\nmodels = "a\\u0000b"', "must be a path"),
        ('[log]\nlevel = "loud"', "must be"),
    ],
)
def test_a_wrong_value_is_refused_with_what_would_be_right(line: str, reason: str) -> None:
    base = LEAST.partition("[net]")[0] if line.startswith("[net]") else LEAST
    [found] = [problem for problem in problems(base + line + "\n") if "net.bind is missing" not in problem]
    assert reason in found
    key = line.split("\n")[1].partition(" =")[0]
    assert f"{line[1 : line.index(']')]}.{key} " in found
    assert found.startswith(f"{FILE}:")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('[net]\nbind = "0.0.0.0"', "net.advertise must be set"),
        ('[net]\nbind = "10.0.0.1"\nadvertise = "::"', "must be an address that others can dial"),
        ('[net]\nbind = "10.0.0.1"\nport = 65535', "net.bulk_port must be set"),
        ('[net]\nbind = "10.0.0.1"\nbulk_port = 7946', "net.bulk_port must differ"),
        ('[net]\nbind = "10.0.0.1"\n[status]\nmetrics_port = 7947', "status.metrics_port must differ"),
        ('[net]\nbind = "10.0.0.1"\n[membership]\nprobe_timeout_s = "250ms"', "under half"),
        (f'[net]\nbind = "10.0.0.1"\n[status]\nsocket = "/{"x" * 107}"', "at most 107"),
        ('[net]\nbind = "10.0.0.1"\n[store]\ninbox = "models"', "same directory"),
    ],
)
def test_settings_that_do_not_fit_together_are_refused(text: str, reason: str) -> None:
    [found] = problems('[node]\nname = "a"\nrack = "r"\n' + text)
    assert reason in found


def test_a_key_in_the_wrong_section_is_shown_its_home() -> None:
    assert "did you mean limits.pool_bytes?" in problems(LEAST + "[store]\npool_bytes = 1\n")[0]
    assert "did you mean net.bind?" in problems('bind = "x"\n' + LEAST)[0]


def test_a_section_must_be_one() -> None:
    assert "must be a section" in problems('node = "a"\n[net]\nbind = "10.0.0.1"\n')[0]


def test_a_file_that_is_not_toml_is_refused_with_line_and_column() -> None:
    assert "line 3" in problems("[node]\nname = 'a'\nrack = \n")[0]


@pytest.mark.parametrize("value", ["[" * 2000, "[" * 1000 + "]" * 1000, "{a=" * 2000, "1" * 5000])
def test_toml_that_its_parser_gives_up_on_is_refused_like_any_other(value: str) -> None:
    assert "is not TOML" in problems(f"x = {value}\n")[0]
    assert problems(LEAST, GOSSIPD_NET__PORT=value)


@pytest.mark.parametrize("setting", ["[status]\nmetrics_port", "[store]\nreserve_bytes", "[sources]\ntimeout_s"])
@pytest.mark.parametrize("number", ["0x" + "f" * 5000, "-" + "9" * 4000, "1e999", "nan"])
def test_a_number_too_long_to_be_shown_is_a_wrong_value(setting: str, number: str) -> None:
    assert any("must be" in problem for problem in problems(f"{LEAST}{setting} = {number}\n"))


def test_a_home_directory_that_nobody_has_is_a_wrong_path() -> None:
    for line in ('[store]\nmodels = "~nobody-at-all/m"', '[security]\ntrust = ["~nobody-at-all/k.pub"]'):
        assert any("home directory" in problem for problem in problems(f"{LEAST}{line}\n"))


def test_the_environment_overrides_the_file() -> None:
    config = parse(
        "",
        GOSSIPD_NET__PORT="8000",
        GOSSIPD_NET__JOIN="a:1, b:2",
        GOSSIPD_NODE__NAME="7",
        GOSSIPD_SOURCES__ENABLED="false",
        GOSSIPD_LIMITS__POOL_BYTES="1GiB",
        GOSSIPD_SECURITY__TRUST='["/k.pub"]',
        GOSSIPD_STORE__MODELS="elsewhere",
        GOSSIPD_SOCKET="/not/a/setting",
        HOME="/root",
    )
    assert (config.net.port, config.net.join, config.node.name) == (8000, ("a:1", "b:2"), "7")
    assert (config.sources.enabled, config.limits.pool_bytes) == (False, 1024**3)
    assert config.security.trust == (Path("/k.pub"),)
    assert config.store.models == Path("/srv/gossipd/elsewhere")


def test_a_value_of_the_environment_has_a_bound_like_the_file() -> None:
    longest = "x" * VALUE_CHARACTERS_MAX
    assert problems(LEAST, GOSSIPD_LIMITS__POOL_BYTES=longest + "x") == [
        "environment variable GOSSIPD_LIMITS__POOL_BYTES: limits.pool_bytes has more than 16384 characters"
    ]
    assert "is not a size" in problems(LEAST, GOSSIPD_LIMITS__POOL_BYTES=longest)[0]


def test_the_environment_can_give_what_the_file_lacks() -> None:
    config = parse_config(
        "", FILE, {"GOSSIPD_NODE__NAME": "a", "GOSSIPD_NODE__RACK": "r", "GOSSIPD_NET__BIND": "10.0.0.1"}
    )
    assert config.node.rack == "r"


def test_a_wrong_override_names_its_variable() -> None:
    found = problems(LEAST, GOSSIPD_NET__PORT="many", GOSSIPD_NET__PROT="1")
    assert found == [
        "environment variable GOSSIPD_NET__PROT: names no setting; did you mean GOSSIPD_NET__PORT?",
        "environment variable GOSSIPD_NET__PORT: net.port must be a whole number from 1 to 65535",
    ]


def test_files_that_cannot_be_read_are_refused(tmp_path: Path) -> None:
    for name, content, reason in (
        ("missing", None, "No such file"),
        ("latin", b"name = '\xe9'", "not UTF-8"),
        ("long", b"#" * (FILE_BYTES_MAX + 1), "more than"),
    ):
        path = tmp_path / name
        if content is not None:
            path.write_bytes(content)
        with pytest.raises(ConfigError, match=reason):
            load_config(path, {})


def test_a_pipe_is_refused_at_once_and_the_mark_of_an_editor_is_none_of_its_text(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ConfigError, match="is not a file"):
        load_config(tmp_path / "pipe", {})
    (tmp_path / "marked").write_bytes(b"\xef\xbb\xbf" + LEAST.replace("\n", "\r\n").encode())
    load_config(tmp_path / "marked", {})


def test_changed_files_are_read_or_refused() -> None:
    rng = Random(3)
    text = example_text()
    for _ in range(300):
        at = rng.randrange(len(text))
        changed = (
            text[:at]
            + rng.choice(["", "=", "[", '"', "\n", "0", "-", "é", "\x00", text[at : at + 40] * 2])
            + text[at + 3 :]
        )
        try:
            parse_config(changed, FILE, {})
        except ConfigError as error:
            assert error.problems


def test_a_change_is_either_applied_or_needs_a_restart() -> None:
    old = parse()
    new = parse(
        '[limits]\nupload_bytes_per_s = 5\n[store]\nmodels = "other"\nkeep_versions = 3\n[log]\nlevel = "debug"\n'
    )
    reloadable, restart = diff(old, new)
    assert [change.key for change in reloadable] == ["limits.upload_bytes_per_s", "log.level"]
    assert [(change.key, change.new) for change in restart] == [
        ("store.models", Path("/srv/gossipd/other")),
        ("store.keep_versions", 3),
    ]
    assert diff(old, old) == ((), ())


def test_identity_addresses_and_the_store_need_a_restart() -> None:
    fixed = {item for name in ("node", "bulk") for item in SECTIONS[name].settings if item.reload}
    assert fixed == set()
    assert [item.name for item in SECTIONS["net"].settings if item.reload] == ["join"]


def test_all_key_files_are_checked_at_once(tmp_path: Path) -> None:
    (tmp_path / "gossipd.toml").write_text(LEAST + '[security]\ntrust = ["none.pub"]\nclients = ["open.pub"]\n')
    write_key_pair(tmp_path / "node.key", SecretKey(b"n" * 32))
    (tmp_path / "node.key").chmod(0o644)
    write_key_pair(tmp_path / "open", SecretKey(b"o" * 32)).chmod(0o666)
    config = load_config(tmp_path / "gossipd.toml", {})
    with pytest.raises(ConfigError) as caught:
        read_keys(config)
    assert [problem.key for problem in caught.value.problems] == [
        "security.node_key", "security.cluster_key", "security.trust", "security.clients",
    ]  # fmt: skip


def test_key_files_are_read_and_stay_out_of_sight(tmp_path: Path) -> None:
    (tmp_path / "gossipd.toml").write_text(LEAST + '[security]\ntrust = ["p.pub"]\nclients = ["c.pub"]\n')
    for name in ("node.key", "p", "c"):
        write_key_pair(tmp_path / name, SecretKey(name[:1].encode() * 32))
    write_key_ring(tmp_path / "cluster.key", new_key_ring(bytes(range(48))))
    keys = read_keys(load_config(tmp_path / "gossipd.toml", {}))
    assert keys.node == SecretKey(b"n" * 32)
    assert [key.ed25519 for key in keys.publishers] == [SecretKey(b"p" * 32).public.ed25519]
    assert [key.ed25519 for key in keys.clients] == [SecretKey(b"c" * 32).public.ed25519]
    assert repr(b"n" * 8)[2:-1] not in repr(keys)


def test_a_trusted_key_may_be_limited_to_names(tmp_path: Path) -> None:
    text = '[security]\ntrust = ["a.pub", "b.pub"]\ntrust_names = {"a.pub" = ["prod/*", "x"]}\n'
    config = parse(text)
    assert config.security.trust_names == ((str(FILE.parent / "a.pub"), ("prod/*", "x")),)
    [problem] = problems(LEAST + text.replace('{"a.pub"', '{"c.pub"'))
    assert "not in security.trust" in problem
    [problem] = problems(LEAST + '[security]\ntrust_names = ["a.pub"]\n')
    assert "must be a table" in problem


def test_roles_that_may_cancel_are_known_words() -> None:
    assert parse().security.may_cancel == ("publisher", "client", "deployer")
    [problem] = problems(LEAST + '[security]\nmay_cancel = ["anybody"]\n')
    assert "must be one of publisher, client, deployer, member" in problem


def test_a_reload_tells_which_keys_came_and_went_and_for_which_names() -> None:
    one, other = SecretKey(b"1" * 32).public, SecretKey(b"2" * 32).public
    node, ring = SecretKey(b"s" * 32), KeyRing(b"c" * 16, (b"k" * 32,))
    before, after = Keys(node, ring, (one,), (other,)), Keys(node, ring, (other,), (other,), {other.ed25519: ("a/*",)})
    assert key_changes(before, before) == []
    assert key_changes(before, after) == [
        {"whom": "publishers", "added": f"{key_id(other.ed25519).hex()}:a/*", "removed": key_id(one.ed25519).hex()}
    ]
    assert [change["whom"] for change in key_changes(after, Keys(node, ring, (other,), (), {}))] == [
        "publishers", "clients",
    ]  # fmt: skip
