"""Environment, program and limits of an execution."""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import msgspec
from django.conf import settings

from apps.jobs.models import Job, Run
from apps.jobs.runners.accounts import BrokerAccounts
from apps.jobs.runners.base import CannotRun, ContainerLimits, RegistryLogin, RunSpec, Volume
from apps.runtime.services.objects import shared_objects
from yardkit.objects import ObjectStoreUnavailable
from yardkit.secretbox import SecretError
from yardkit.tokens import frontier_scope, pools_scope, sign_run_token, sign_scope

# How long the address of a run's requests is valid: an image may have to be pulled first.
REQUESTS_SECONDS: Final = 1800


def spec_of(run: Run, folder: Path) -> RunSpec:
    """Return the specification of a run's execution.

    Raises:
        CannotRun: the job's secrets cannot be decrypted, or the requests that the run makes again
            have no address.
    """
    job = run.job
    in_container = bool(run.image_digest)
    project = job.project
    return RunSpec(
        run=run.pk,
        boot=run.boot,
        folder=folder,
        # Platform variables override those of the job, so that no job can impersonate another run.
        environment={**_texts(job.environment), **_secrets(job), **_platform(run, in_container)},
        spider=job.spider,
        command=tuple(str(word) for word in job.command),
        python_path=settings.SPIDER_PYTHON_PATH,
        image=run.image_digest,
        image_name=run.image_reference,
        registry=RegistryLogin(project.registry_username, project.registry_password)
        if in_container
        else RegistryLogin(),
        limits=ContainerLimits(
            cpus=job.cpu_limit or settings.RUN_CPUS,
            memory_bytes=job.memory_limit_bytes or settings.RUN_MEMORY_BYTES,
            pids=settings.RUN_PIDS,
        ),
        labels={"crawlyard.job": str(job.pk), "crawlyard.project": project.slug},
        volumes=tuple(_volumes(project.slug, job.name)) if in_container else (),
    )


def _volumes(project: str, job: str) -> Iterator[Volume]:
    for of_project, of_job, source, target, read_only in settings.RUN_VOLUMES:
        if of_project in ("", project) and of_job in ("", job):
            yield Volume(source, target, read_only)


def installation() -> str:
    """Return an ID that is shared by all hosts of this installation, and unique to it."""
    key = settings.SECRET_KEY.encode()
    return hmac.new(key, b"crawlyard installation", hashlib.sha256).hexdigest()[:16]


def accounts_for(kind: str) -> BrokerAccounts | None:
    """Return the broker accounts for a kind of runner; None: runs use the platform's account."""
    if not settings.BROKER_MANAGEMENT_URL:
        return None
    return BrokerAccounts(
        settings.BROKER_MANAGEMENT_URL,
        settings.RUN_BROKER_URL if kind == "docker" else settings.BROKER_URL,
        installation=installation(),
    )


def with_account(spec: RunSpec, run: Run, accounts: BrokerAccounts | None) -> RunSpec:
    """Return the specification with a new broker account for this execution.

    Raises:
        RunnerAway: the account cannot be created at the moment.
    """
    if accounts is None:
        return spec
    url = accounts.open(run.pk, run.boot, run.topic)
    return replace(spec, environment={**spec.environment, "BROKER_URL": url})


def _platform(run: Run, in_container: bool) -> dict[str, str]:
    job = run.job
    return {
        "BROKER_URL": settings.RUN_BROKER_URL if in_container else settings.BROKER_URL,
        "CRAWLYARD_RUN_TOKEN": sign_run_token(settings.SECRET_KEY, run.pk),
        "CRAWLYARD_ARGUMENTS": json.dumps(run.arguments),
        "CRAWLYARD_SETTINGS": json.dumps(job.spider_settings()),
        "CRAWLYARD_DOWNLOADER": msgspec.json.encode(job.downloader_settings()).decode(),
        "CRAWLYARD_POLICY": job.policy,
        "CRAWLYARD_AGENTS": str(job.agents),
        "CRAWLYARD_TOPIC": run.topic,
        "CRAWLYARD_KEEPS_REQUESTS": "1",
        "CRAWLYARD_PROJECT": job.project.slug,
        "CRAWLYARD_JOB": job.name,
        **_requests(run),
        **_seeds(job),
        "CRAWLYARD_POOLS": str(job.project_id),
        "CRAWLYARD_POOLS_TOKEN": sign_scope(settings.SECRET_KEY, pools_scope(job.project_id)),
    }


def _requests(run: Run) -> dict[str, str]:
    """Return the variable with the address of the requests that the run makes, if only these."""
    if not run.requests_object:
        return {}
    try:
        address = shared_objects().sign("GET", run.requests_object, REQUESTS_SECONDS)
    except ObjectStoreUnavailable as error:
        raise CannotRun(f"the requests to make again cannot be handed out: {error}") from error
    return {"CRAWLYARD_REQUESTS": address}


def _seeds(job: Job) -> dict[str, str]:
    """Return environment variables that give the run access to its job's frontier."""
    frontier = job.frontier_id
    if frontier is None:
        return {}
    return {
        "CRAWLYARD_FRONTIER": str(frontier),
        "CRAWLYARD_FRONTIER_TOKEN": sign_scope(settings.SECRET_KEY, frontier_scope(frontier)),
    }


def _secrets(job: Job) -> dict[str, str]:
    try:
        secrets = json.loads(job.secrets or "{}")
    except SecretError as error:
        raise CannotRun("no key of SECRETBOX_KEYS opens the job's secret environment") from error
    except ValueError as error:
        raise CannotRun("the job's secret environment is no JSON object") from error
    return _texts(secrets)


def _texts(values: Any) -> dict[str, str]:
    if not isinstance(values, dict):
        raise CannotRun("the job's environment is no JSON object")
    return {str(name): str(value) for name, value in values.items()}
