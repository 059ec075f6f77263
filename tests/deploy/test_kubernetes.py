"""Kubernetes: every manifest fits a strict schema, and every process is there with what it needs.

No cluster is at hand here: what one makes of them is not proved.
"""

from __future__ import annotations

import copy
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from crawlyard.units import box
from tools.requirement_marks import ROOT
from yardkit import topology

KUBERNETES = ROOT / "deploy" / "kubernetes"
BASE = KUBERNETES / "base"
SCHEMA = json.loads((Path(__file__).parent / "manifest_schema.json").read_text())
WORKLOADS = ("Deployment", "DaemonSet", "Job")


def manifests() -> list[dict[str, Any]]:
    names = yaml.safe_load((BASE / "kustomization.yaml").read_text())["resources"]
    found = [one for name in names for one in yaml.safe_load_all((BASE / name).read_text())]
    assert {path.name for path in BASE.glob("*.yaml")} == {*names, "kustomization.yaml"}
    return found


def of_kind(*kinds: str) -> dict[str, dict[str, Any]]:
    return {one["metadata"]["name"]: one for one in manifests() if one["kind"] in kinds}


def pod(manifest: dict[str, Any]) -> dict[str, Any]:
    spec: dict[str, Any] = manifest["spec"]["template"]["spec"]
    return spec


@pytest.mark.parametrize(
    "manifest", manifests(), ids=lambda one: f"{one['kind']} {one['metadata']['name']}"
)
def test_every_manifest_fits_the_schema(manifest: dict[str, Any]) -> None:
    jsonschema.Draft202012Validator(SCHEMA).validate(manifest)


@pytest.mark.parametrize(
    ("where", "value"),
    [
        (("spec", "template", "spec", "hostNetwork"), True),
        (("spec", "template", "spec", "automountServiceAccountToken"), True),
        (("spec", "template", "spec", "containers", 0, "securityContext", "privileged"), True),
        (("spec", "template", "spec", "containers", 0, "image"), "crawlyard:latest"),
        (("spec", "template", "spec", "containers", 0, "resources", "limits"), {}),
        (("spec", "replica"), 2),
    ],
)
def test_the_schema_refuses_what_must_not_be(where: tuple[Any, ...], value: Any) -> None:
    manifest = copy.deepcopy(of_kind("Deployment")["center"])
    inner: Any = manifest
    for key in where[:-1]:
        inner = inner[key]
    inner[where[-1]] = value
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.Draft202012Validator(SCHEMA).validate(manifest)


def test_every_process_of_a_box_is_there() -> None:
    commands = {
        (args[0], topology.BUILDS if topology.BUILDS in args else "")
        for args in (pod(one)["containers"][0]["args"] for one in of_kind(*WORKLOADS).values())
    }
    wanted = {
        (unit.argv[2], topology.BUILDS if topology.BUILDS in unit.argv else "")
        for unit in box(host="x", port=1, agents=1)
    }
    assert commands == wanted | {("migrate", "")}


def test_everything_points_at_something() -> None:
    workloads = of_kind(*WORKLOADS)
    accounts = of_kind("ServiceAccount")
    for name, one in workloads.items():
        labels = one["spec"]["template"]["metadata"]["labels"]
        assert labels["app.kubernetes.io/component"] == name
        if one["kind"] != "Job":
            assert one["spec"]["selector"]["matchLabels"].items() <= labels.items()
        assert pod(one)["serviceAccountName"] in accounts
        volumes = {each["name"] for each in pod(one)["volumes"]}
        assert {each["name"] for each in pod(one)["containers"][0]["volumeMounts"]} == volumes
    deployments = of_kind("Deployment")
    for name, one in of_kind("PodDisruptionBudget").items():
        assert one["spec"]["selector"]["matchLabels"] == {"app.kubernetes.io/component": name}
    assert of_kind("PodDisruptionBudget").keys() == deployments.keys()
    for one in of_kind("HorizontalPodAutoscaler").values():
        assert one["spec"]["scaleTargetRef"]["name"] in deployments


def test_what_goes_on_is_probed_and_the_web_says_when_it_is_ready() -> None:
    for name, one in of_kind("Deployment", "DaemonSet").items():
        container = pod(one)["containers"][0]
        for probe in ("startupProbe", "livenessProbe"):
            assert container[probe]["exec"]["command"] == ["python3", "-m", "yardkit.alive"], name
    web = pod(of_kind("Deployment")["web"])["containers"][0]
    assert web["readinessProbe"]["httpGet"]["path"] == "/readyz"


def test_autoscalers_ask_for_figures_that_exist_and_that_the_adapter_hands_on() -> None:
    documented = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
    adapter = yaml.safe_load((KUBERNETES / "prometheus-adapter.yaml").read_text())
    handed_on = {rule["name"]["as"] for rule in adapter["rules"]["external"]}
    asked = set()
    for one in of_kind("HorizontalPodAutoscaler").values():
        for metric in one["spec"]["metrics"]:
            asked.add(metric["external"]["metric"]["name"])
    assert asked == handed_on
    for name in asked:
        assert f"`{name.removeprefix('crawlyard_').replace('_', '.', 1)}`" in documented


def test_an_agent_knows_the_broker_alone() -> None:
    agent = pod(of_kind("Deployment")["agent"])
    container = agent["containers"][0]
    assert "envFrom" not in container
    secret = next(one["secret"] for one in agent["volumes"] if "secret" in one)
    assert secret["secretName"] == "crawlyard-broker"
    assert {one["name"] for one in container["env"]} == {"LOG_LEVEL", "BROKER_URL_FILE"}


def test_only_who_runs_spiders_may_make_accounts_of_the_broker() -> None:
    runner = pod(of_kind("DaemonSet")["runner"])
    names = {one["name"]: one.get("value", "") for one in runner["containers"][0]["env"]}
    path = Path(names["BROKER_MANAGEMENT_URL_FILE"])
    mounted = {one["mountPath"]: one["name"] for one in runner["containers"][0]["volumeMounts"]}
    secrets = {one["name"]: one["secret"] for one in runner["volumes"] if "secret" in one}
    assert secrets[mounted[str(path.parent)]]["secretName"] == "crawlyard-management"
    users = {
        name
        for name, one in of_kind(*WORKLOADS).items()
        if "crawlyard-management" in json.dumps(one)
    }
    assert users == {"runner"}
    documented = (ROOT / "docs" / "install.md").read_text(encoding="utf-8")
    assert f"crawlyard-management --from-file={path.name}" in documented


def test_only_who_builds_and_who_runs_may_use_the_engine() -> None:
    users = {name for name, one in of_kind(*WORKLOADS).items() if "docker.sock" in json.dumps(one)}
    assert users == {"builds", "runner"}


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="no kubectl on PATH")
@pytest.mark.parametrize("overlay", ["small", "large"])
def test_overlays_can_be_built(overlay: str) -> None:
    done = subprocess.run(
        ["kubectl", "kustomize", str(KUBERNETES / "overlays" / overlay)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    built = list(yaml.safe_load_all(done.stdout))
    assert {one["metadata"]["namespace"] for one in built} == {"crawlyard"}
    scalers = [one for one in built if one["kind"] == "HorizontalPodAutoscaler"]
    assert bool(scalers) == (overlay == "large")
