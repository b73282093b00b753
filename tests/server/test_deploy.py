"""The files of examples/deploy/ agree with the product and with one another.

Their ports, keys, commands, metrics and paths; and the tools that know a format check it, where
this machine has them.
"""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from rmqlite import __version__
from rmqlite.features.accounts.gate.exposure import check_exposure
from rmqlite.features.accounts.gate.limits import OTHER_FILES, PROTOCOLS
from rmqlite.kernel.config.config import KEYS, BrokerConfig, load_config, parse_config
from rmqlite.kernel.words.message import Message
from rmqlite.protocols.shared.tls import OPENING_MAX
from tests.support.brokers import BrokerUnderTest
from tests.support.commands import wrong_with
from tests.support.documents import ROOT, Page, spans_of
from tests.support.scrape import METRIC, Scrape, scrape

FOLDER = ROOT / "examples" / "deploy"
IMAGE = f"rmqlite:{__version__}"
ETC = "/etc/rmqlite"
PORTS = ("grpc_port", "name_server_port", "listen_port", "metrics_port", "web_port")
DOCKERFILE = (FOLDER / "Dockerfile").read_text("utf-8").replace("\\\n", " ")
UNIT = FOLDER / "rmqlite.service"
ETCD_UNIT = FOLDER / "two" / "etcd.service"
ALERTS_TEST = Path(__file__).with_name("alerts_test.yml")


def document(name: str) -> Any:
    return yaml.safe_load((FOLDER / name).read_text("utf-8"))


COMPOSE = document("compose.yaml")
TWO = document("two.yaml")
MANIFEST = {
    each["kind"]: each for each in yaml.safe_load_all((FOLDER / "kubernetes.yaml").read_text())
}
POD = MANIFEST["StatefulSet"]["spec"]["template"]["spec"]
(BROKER,) = POD["containers"]
(INIT,) = POD["initContainers"]
CONF_OF_POD = MANIFEST["ConfigMap"]["data"]["broker.conf"]
RULES: list[dict[str, Any]] = [
    rule for group in document("prometheus/alerts.yml")["groups"] for rule in group["rules"]
]


@pytest.fixture
def found(tmp_path: Path) -> Iterator[Scrape]:
    """A broker of which each metric has a sample."""
    under_test = BrokerUnderTest(tmp_path)
    under_test.send(Message("orders", b"x"))
    under_test.messages("orders")
    yield scrape(under_test)
    under_test.store.release()


def ports_of(config: BrokerConfig) -> set[int]:
    return {getattr(config, name) for name in PORTS} - {0}


def argument_of(instruction: str) -> list[str]:
    return re.findall(rf"^(?:  )?{instruction} (.+)$", DOCKERFILE, re.MULTILINE)


def settings_of_unit() -> dict[str, str]:
    lines = [line for line in UNIT.read_text("utf-8").splitlines() if "=" in line]
    return dict(line.split("=", 1) for line in lines if not line.startswith("#"))


def seconds(text: str) -> int:
    return int(text.removesuffix("min")) * 60 if text.endswith("min") else int(text.rstrip("s"))


def test_every_file_of_yaml_can_be_read() -> None:
    """And none is empty."""
    files = [path for suffix in ("yml", "yaml") for path in FOLDER.rglob(f"*.{suffix}")]
    assert len(files) == 7
    for path in files:
        assert all(yaml.safe_load_all(path.read_text("utf-8"))), path


def test_alerts_use_metrics_that_exist(found: Scrape) -> None:
    """An alert with an old name is silent, as if all were well."""
    for rule in RULES:
        names = METRIC.findall(rule["expr"]) or ["up"]
        assert names == ["up"] or set(names) <= found.sample_names(), rule["expr"]
        labels = {"instance", "job"}
        labels |= {label for name in names for pairs in found.labels(name) for label, _ in pairs}
        texts = " ".join(rule["annotations"].values())
        assert set(re.findall(r"\$labels\.(\w+)", texts)) <= labels, rule["alert"]
        assert rule["expr"].count('{job="rmqlite"}') == len(names), rule["expr"]
        for name in names:
            if name.endswith(("_total", "_bucket")):
                assert re.search(rf"\b(rate|increase)\({name}\{{", rule["expr"]), rule["expr"]


def test_alerts_say_what_it_is_and_what_to_do() -> None:
    """Somebody is woken by the summary and begins with the description."""
    for rule in RULES:
        assert set(rule) == {"alert", "expr", "for", "labels", "annotations"}
        assert re.fullmatch(r"\d+[mh]", rule["for"]), rule["alert"]
        assert rule["labels"]["severity"] in {"critical", "warning"}
        summary, description = (rule["annotations"][each] for each in ("summary", "description"))
        assert summary.endswith(".")
        assert "\n" not in summary
        assert "{{" in summary
        for command in spans_of(description):
            assert not wrong_with(shlex.split(command)[1:]), command
        for key in re.findall(r"\b[a-z]+[A-Z]\w*", description):
            assert key in KEYS.values(), key


def test_the_page_lists_every_alert() -> None:
    """With its severity."""
    rows = Page.read(FOLDER / "README.md").table_after("## Alerts")
    listed = [(*spans_of(name), severity) for name, severity, *_ in rows]
    assert listed == [(rule["alert"], rule["labels"]["severity"]) for rule in RULES]


@pytest.mark.skipif(not shutil.which("promtool"), reason="promtool is not here")
@pytest.mark.parametrize(
    "arguments",
    [
        ("check", "config", str(FOLDER / "prometheus" / "prometheus.yml")),
        ("test", "rules", str(ALERTS_TEST)),
    ],
)
def test_promtool_takes_the_rules(arguments: tuple[str, ...]) -> None:
    """It computes them on series that are written down."""
    done = subprocess.run(["promtool", *arguments], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_image_runs_a_command_that_exists_as_nobody_special() -> None:
    """Its parts are in the context that .dockerignore leaves."""
    assert _words("ENTRYPOINT") == ["rmqlite"]
    assert not wrong_with(_words("CMD"))
    (user,) = argument_of("USER")
    assert f"--uid {user} " in DOCKERFILE
    context = (FOLDER / "Dockerfile.dockerignore").read_text("utf-8").splitlines()
    kept = [line[1:] for line in context if line.startswith("!")]
    assert all((ROOT / each).exists() for each in kept)
    copied = [line.split()[0] for line in argument_of("COPY") if not line.startswith("--from")]
    assert [each for each in copied if each not in (".", *kept)] == []
    (extras,) = re.findall(r'"/src\[([\w,]+)\]"', DOCKERFILE)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert set(extras.split(",")) <= set(project["optional-dependencies"])


def _words(instruction: str) -> list[str]:
    (words,) = re.findall(rf"^{instruction} (\[.+\])$", DOCKERFILE, re.MULTILINE)
    found: list[str] = yaml.safe_load(words)
    return found


def test_the_image_exposes_the_ports_of_its_broker() -> None:
    """The second port of RocketMQ's Java clients is the one below listenPort by two."""
    config = load_config(FOLDER / "conf" / "broker.conf")
    (exposed,) = argument_of("EXPOSE")
    assert {int(port) for port in exposed.split()} == ports_of(config) | {config.listen_port - 2}
    check_exposure(config)


def test_compose_publishes_on_loopback_only() -> None:
    """Its broker has no accounts."""
    for service in COMPOSE["services"].values():
        for port in service["ports"]:
            address, outside, inside = port.split(":")
            assert (address, outside) == ("127.0.0.1", inside)
    broker = COMPOSE["services"]["broker"]
    config = load_config(FOLDER / "conf" / "broker.conf")
    inside = {int(port.split(":")[2]) for port in broker["ports"]}
    assert inside == ports_of(config) - {config.metrics_port} | {config.listen_port - 2}
    assert seconds(broker["stop_grace_period"]) * 1000 > config.drain_ms_max
    assert broker["ulimits"]["nofile"] >= open_files(config)


def open_files(config: BrokerConfig) -> int:
    """What all connections and the store need, with TLS."""
    return PROTOCOLS * config.connections_max + OTHER_FILES + OPENING_MAX


def test_compose_mounts_what_is_there() -> None:
    """Prometheus finds rules and broker, Grafana finds Prometheus and the dashboard."""
    mounted = {}
    for service in COMPOSE["services"].values():
        for volume in service["volumes"]:
            source, target, *_ = volume.split(":")
            if source.startswith("."):
                assert (FOLDER / source).exists(), volume
                mounted[target] = (FOLDER / source).resolve()
            else:
                assert source in COMPOSE["volumes"]
    assert (mounted[ETC] / "broker.conf").exists()
    config = load_config(mounted[ETC] / "broker.conf")
    prometheus = document("prometheus/prometheus.yml")
    assert all((mounted["/etc/prometheus"] / each).exists() for each in prometheus["rule_files"])
    (job,) = prometheus["scrape_configs"]
    assert job["job_name"] == "rmqlite"
    assert job["static_configs"] == [{"targets": [f"broker:{config.metrics_port}"]}]
    (source,) = document("grafana/datasources.yml")["datasources"]
    assert source["url"] == "http://prometheus:9090"
    (provider,) = document("grafana/dashboards.yml")["providers"]
    home = COMPOSE["services"]["grafana"]["environment"][
        "GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"
    ]
    assert home.rpartition("/")[0] == provider["options"]["path"]
    assert mounted[home] == ROOT / "examples" / "grafana-dashboard.json"


def address_of(service: dict[str, Any]) -> str:
    return str(service["networks"]["brokers"]["ipv4_address"])


def test_two_brokers_name_each_other_and_the_authority() -> None:
    """Each follows the other one, whichever is the master, and all are in one network."""
    addresses, configs = {}, {}
    services = dict(TWO["services"])
    authority = f"etcd://{address_of(services.pop('etcd'))}:2379/orders"
    for name, service in services.items():
        addresses[name] = address_of(service)
        folder = next(each for each in service["volumes"] if each.endswith(f"{ETC}:ro"))
        configs[name] = load_config(FOLDER / folder.partition(":")[0] / "broker.conf")
        check_exposure(configs[name])
        assert not service.get("ports")
        assert service["ulimits"]["nofile"] >= open_files(configs[name])
    roles = {name: config.broker_role for name, config in configs.items()}
    assert roles == {"first": "SYNC_MASTER", "second": "SLAVE"}
    for name, other in (("first", "second"), ("second", "first")):
        config = configs[name]
        assert config.broker_ip == addresses[name]
        assert config.master_address == f"{addresses[other]}:{configs[other].grpc_port}"
        assert config.name_server_addresses == tuple(
            [f"{address}:{config.name_server_port}" for address in addresses.values()]
        )
        assert config.brokers_allowed.split(";") == list(addresses.values())
        assert config.in_sync_replicas == 2
        assert config.authority == authority


def test_the_etcd_of_two_brokers_is_the_one_of_the_tests() -> None:
    """Its version too; and systemd starts it as the container is started."""
    service = TWO["services"]["etcd"]
    lines = ETCD_UNIT.read_text("utf-8").replace("\\\n", " ")
    (command,) = re.findall(r"^ExecStart=(.+)$", lines, re.MULTILINE)
    assert shlex.split(command) == ["/usr/bin/etcd", *service["command"]]
    for each in service["command"][1:]:
        assert each.partition("=")[2] == f"http://{address_of(service)}:2379"
    (kept,) = service["volumes"]
    assert service["command"][0] == f"--data-dir={kept.partition(':')[2]}"
    steps = service["build"]["dockerfile_inline"]
    versions = re.findall(r"go\.etcd\.io/etcd/server/v3@(\S+)", steps)
    modules = (ROOT / "tests" / "features" / "authority" / "etcd" / "go.mod").read_text()
    assert [service["image"].partition(":")[2]] == versions
    assert f"go.etcd.io/etcd/server/v3 {versions[0]}" in modules
    assert f"\ngo {steps.partition('golang:')[2].split()[0]}\n" in modules


def test_images_have_plain_names_and_this_version() -> None:
    """Whoever has a registry of their own puts its name before them."""
    images = [each["image"] for each in COMPOSE["services"].values()]
    images += [each["image"] for each in TWO["services"].values()]
    images += [INIT["image"], BROKER["image"]]
    assert [each for each in images if each.startswith("rmqlite")] == [IMAGE] * 5
    for image in images:
        assert "." not in image.partition(":")[0]
    assert f"-t {IMAGE} " in DOCKERFILE
    assert f"-t {IMAGE} " in (FOLDER / "README.md").read_text("utf-8")


def test_the_pod_has_a_broker_with_accounts(tmp_path: Path) -> None:
    """And its init container writes the pod's address into broker.conf, and nothing else."""
    given = tmp_path / "given.conf"
    given.write_text(CONF_OF_POD)
    config = parse_config(CONF_OF_POD)
    check_exposure(config)
    assert config.acl_enabled
    assert not config.allow_unauthenticated
    *shell, script = INIT["command"]
    assert shell == ["sh", "-c"]
    script = script.replace(f"{ETC}/given/broker.conf", str(given))
    script = script.replace(f"{ETC}/conf/broker.conf", str(tmp_path / "made.conf"))
    subprocess.run(
        [*shell, script], env={"POD_IP": "10.1.2.3", "PATH": "/usr/bin:/bin"}, check=True
    )
    made = load_config(tmp_path / "made.conf")
    assert made == config.model_copy(update={"broker_ip": "10.1.2.3"})
    assert INIT["env"][0]["valueFrom"]["fieldRef"]["fieldPath"] == "status.podIP"


def test_the_pod_fits_the_image_and_its_broker() -> None:
    """Ports, probes, user, volumes, and the time for a stop."""
    config = parse_config(CONF_OF_POD)
    assert not wrong_with(BROKER["args"])
    ports = {each["name"]: each["containerPort"] for each in BROKER["ports"]}
    assert set(ports.values()) == ports_of(config)
    service = {each["targetPort"]: each["port"] for each in MANIFEST["Service"]["spec"]["ports"]}
    assert service == ports
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert BROKER[probe]["grpc"] == {"port": config.grpc_port}
    (user,) = argument_of("USER")
    security = POD["securityContext"]
    assert {security[each] for each in ("runAsUser", "runAsGroup", "fsGroup")} == {int(user)}
    assert security["runAsNonRoot"] is True
    assert POD["terminationGracePeriodSeconds"] * 1000 > config.drain_ms_max


def test_the_pod_mounts_every_folder_that_its_broker_uses() -> None:
    """The rest of its file system is read-only."""
    config = parse_config(CONF_OF_POD)
    volumes = {each["name"] for each in POD["volumes"]}
    spec = MANIFEST["StatefulSet"]["spec"]
    volumes |= {each["metadata"]["name"] for each in spec["volumeClaimTemplates"]}
    mounts = {each["mountPath"]: each for each in BROKER["volumeMounts"]}
    for container in (INIT, BROKER):
        assert {each["name"] for each in container["volumeMounts"]} <= volumes
        assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert str(Path(config.store_path).parent) in mounts
    assert config.metrics_token_file
    for path in (config.acl_file, config.metrics_token_file):
        assert str(Path(path).parent) in mounts
    assert str(Path(BROKER["args"][-1]).parent) in mounts
    labels = spec["template"]["metadata"]["labels"]
    assert spec["selector"]["matchLabels"] == MANIFEST["Service"]["spec"]["selector"] == labels


def test_the_unit_runs_a_command_that_exists_with_room_for_all_connections() -> None:
    """And waits as long as a broker needs to stop."""
    unit = settings_of_unit()
    program, *words = unit["ExecStart"].split()
    assert program.endswith("/bin/rmqlite")
    assert not wrong_with(words)
    assert unit["Type"] == "notify"
    assert unit["ExecReload"] == "/bin/kill -HUP $MAINPID"
    config = BrokerConfig()
    assert int(unit["LimitNOFILE"]) >= open_files(config)
    assert seconds(unit["TimeoutStopSec"]) * 1000 > config.drain_ms_max


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd is not here")
@pytest.mark.parametrize("unit", [UNIT, ETCD_UNIT], ids=lambda unit: unit.name)
def test_systemd_takes_the_units(unit: Path, tmp_path: Path) -> None:
    """A key that it does not know is only a line in its log.  It wants the program to exist."""
    copy = tmp_path / unit.name
    text = unit.read_text("utf-8")
    program = text.partition("\nExecStart=")[2].split()[0]
    copy.write_text(text.replace(program, sys.executable))
    command = ["systemd-analyze", "verify", str(copy)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    about_it = [line for line in done.stderr.splitlines() if unit.name in line]
    assert (done.returncode, about_it) == (0, [])
