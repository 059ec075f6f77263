"""Translated texts of the error codes of the plain-Python parts."""

from __future__ import annotations

from typing import Final

from django.utils.functional import Promise
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from apps.projects.engine.refusals import ProjectInputError

_TEXTS: Final[dict[str, Promise]] = {
    # names of tags, branches and commits
    "ref_empty": _("The name is empty."),
    "ref_too_long": _("The name is longer than %(limit)s bytes."),
    "ref_character": _(
        "“%(ref)s” contains the character “%(character)s”, which is not allowed."
    ),
    "ref_has_prefix": _("“%(ref)s” is a full reference; a plain name is needed."),
    "ref_like_option": _("“%(ref)s” begins like an option of a command."),
    "ref_malformed": _("“%(ref)s” is not a valid name in git."),
    "commit_malformed": _("“%(commit)s” is not the full id of a commit."),
    # templates
    "template_too_long": _("The template is longer than %(limit)s characters."),
    "template_brace": _("A brace is open, or closed twice; write {release}/{name}/{version}."),
    "template_no_separator": _(
        "A separator is missing before {%(name)s}; put one of / - _ there."
    ),
    "template_separator": _(
        "“%(text)s” is not a separator: use exactly one of / - _ between two names."
    ),
    "template_colon": _(
        "Git allows no colon in a tag; use one of / - _. Senders that use the form "
"release:name:version are supported anyway."
    ),
    "template_unknown_name": _(
        "Unknown part {%(name)s}; use {release}, {name} and {version}."
    ),
    "template_repeats": _("{%(name)s} occurs twice."),
    "template_incomplete": _("The template ends without a name; write {release}/{name}/{version}."),
    "template_without_version": _("{version} is missing."),
    # tags
    "tag_does_not_fit": _("“%(tag)s” does not fit the template %(template)s."),
    "tag_ambiguous": _(
        "The tag is ambiguous for %(template)s: %(first)s or %(second)s."
    ),
    "tag_cannot_be_written": _("The template %(template)s has no place for {%(name)s}."),
    # signatures
    "signature_missing": _("The delivery is not signed, or signed in an unknown form."),
    "signature_wrong": _("The signature or token does not match the project's secret."),
    "timestamp_malformed": _("The timestamp of the delivery is not a number of seconds."),
    "timestamp_too_far": _(
        "The timestamp of the delivery differs by more than %(limit)s seconds from "
"the server's time."
    ),
    # request bodies
    "body_not_utf8": _("The body is not UTF-8, at byte %(position)s."),
    "body_malformed": _("The body is not JSON: %(error)s"),
    "body_too_deep": _("The JSON is nested deeper than %(limit)s levels."),
    "body_no_object": _("The body is not a JSON object."),
    "body_without_payload": _("The form has no field “payload”."),
    "field_missing": _("The body lacks %(field)s."),
    "field_no_text": _("%(field)s is not a text."),
    # ignored deliveries
    "ping": _("Ping received: the connection works."),
    "branch": _("%(ref)s is a branch; only tags are built."),
    "tag_deleted": _("The tag %(ref)s was deleted; what was built from it stays."),
    "tag_moved": _(
        "The tag %(ref)s existed before and was moved; only new tags are built. Push a new tag."
    ),
    "unknown_event": _("Nothing is done for the event “%(event)s”."),
    "package_no_image": _("The package is no container image."),
    "package_without_tag": _("The package has no tag, so it cannot be chosen."),
    "builds_disabled": _("The project builds no tags; its settings say so."),
    "no_git_url": _("The project has no git address."),
    "already_built": _("The tag was built already: %(build)s. Use “Build again” to repeat it."),
    "latest_pushed": _(
        "Warning: “latest” is another image after each push, so it is not listed. Push a version."
    ),
    "image_known": _("The image %(image)s is listed already."),
    "image_moved": _(
        "The image %(image)s is listed already with another digest; push a new version."
    ),
    "unknown_repository": _("The project lists no images of the repository %(repository)s."),
    "image_tag_malformed": _("“%(tag)s” is not a valid image tag."),
    "repeated": _("This delivery is a repetition; nothing was done. It can be replayed on "
"its page."),
    # registries
    "registry_not_set": _("The project has no registry and repository."),
    "registry_away": _("The registry does not answer: %(error)s"),
    "registry_refused": _("The registry refuses (%(status)s): %(error)s"),
    "registry_redirects": _("The registry redirects, which is not followed."),
    "registry_too_much": _("The registry's answer is larger than %(limit)s bytes."),
    "registry_nonsense": _("The registry's answer cannot be read: %(error)s"),
    "registry_too_slow": _("The registry did not respond within %(limit)s seconds."),
    "registry_no_digest": _("The registry has no image %(image)s."),
    # git
    "git_tag_missing": _("The git server has no such tag."),
    "git_no_commit": _("The tag leads to no commit."),
    "git_redirect": _(
        "%(host)s redirects git to another address; enter the final address of the "
"repository."
    ),
    "git_auth": _("%(host)s does not accept the user name and password, or asks for them."),
    "git_tls": _("The certificate of %(host)s is not trusted."),
    "git_host_key": _("The host key of %(host)s has changed."),
    "git_unreachable": _("%(host)s does not answer."),
    "git_not_found": _("%(host)s has no such repository, or does not show it to this user."),
    "git_timeout": _("Git was stopped after %(seconds)s s."),
    "git_too_large": _("The repository is larger than %(limit)s bytes."),
    "git_output": _("Git wrote more than %(limit)s bytes."),
    "git_no_plain_file": _("“%(path)s” is not a regular file in the repository."),
    "git_file_too_large": _("“%(path)s” is larger than %(limit)s bytes."),
    "git_password_characters": _("The user name or password contains a line break."),
    "git_missing": _("Git is not installed on this machine."),
    "git_too_old": _("Git %(needed)s or newer is needed on this machine."),
    "git_failed": _("Git failed: %(text)s"),
    # builds
    "build_time_limit": _("time limit: the build took longer than %(seconds)s s."),
    "build_line_failed": _("Line %(line)s of the Dockerfile, %(step)s, failed: %(error)s"),
    "build_step_failed": _("The step %(step)s failed: %(error)s"),
    "build_refused": _("The Docker Engine refused the build: %(error)s"),
    "build_without_image": _("The build ended without an image."),
    "build_too_large": _(
        "size limit: the build takes %(size)s bytes of the disk, %(limit)s are allowed."
    ),
    "build_disk_full": _("The disk of the Docker Engine is almost full: %(free)s bytes are free."),
    "image_too_large": _("size limit: the image has %(size)s bytes, %(limit)s are allowed."),
    "image_labels": _("The build has changed labels that are not its own: %(labels)s"),
    "engine_away": _("The Docker Engine at %(url)s does not answer: %(error)s"),
    "engine_lost": _("The Docker Engine went away during the build: %(error)s"),
    "dockerfile_missing": _("The repository has no “%(path)s”."),
    "recipe_no_requirements": _(
        "The repository has scrapy.cfg, but neither a Dockerfile nor a requirements.txt nor "
        "dependencies in pyproject.toml; add one of them."
    ),
    "recipe_pyproject": _("pyproject.toml cannot be read: %(error)s"),
    "dockerfile_outside": _("“%(path)s” is not a path inside the repository."),
    "dockerfile_image_foreign": _(
        "Line %(line)s of the Dockerfile names the image %(image)s of another project."
    ),
    "dockerfile_image_id": _(
        "Line %(line)s of the Dockerfile names an image by an id, %(image)s; write its name."
    ),
    "dockerfile_image_unknown": _(
        "Line %(line)s of the Dockerfile names an image that cannot be known before the build: "
        "%(image)s. Write it out, or give each variable in it a value before the first FROM."
    ),
    "dockerfile_trigger": _(
        "The image %(image)s in line %(line)s of the Dockerfile makes every build on it copy from "
        "another image (ONBUILD): %(trigger)s"
    ),
    "context_archive": _("The files of the tag cannot be read."),
    "context_name": _("The repository holds a file that cannot be built from: %(path)s"),
    "context_link": _("The link %(path)s -> %(target)s leads out of the repository."),
    "context_too_large": _(
        "size limit: the files of the tag take more than %(limit)s bytes, "
        "or are more than %(files)s."
    ),
    "ignore_too_many": _("The .dockerignore has more than %(limit)s patterns."),
    "ignore_bad_pattern": _("The .dockerignore has a pattern that cannot be read: %(pattern)s"),
    # addresses
    "url_empty": _("The address is empty."),
    "url_too_long": _("The address is longer than %(limit)s characters."),
    "url_character": _("The address contains a space, a backslash or an invisible character."),
    "url_malformed": _("This is not a valid address."),
    "url_scheme": _("The address must begin with one of %(schemes)s."),
    "url_scp_form": _("Write this address as %(meant)s."),
    "url_credentials": _(
        "The address contains a user name or password; use their own fields."
    ),
    "url_user": _("The user name in the address is not allowed."),
    "url_query": _("The address must not contain “?” or “#”."),
    "url_host": _("The host of the address is not valid."),
    "url_path": _("The path of the address is not allowed: %(url)s"),
    "url_without_path": _("The address names a host, but no repository."),
    "url_blocked": _(
        "%(host)s may not be reached (%(reason)s); "
        "GIT_ALLOWED_NETWORKS opens networks of your own."
    ),
    "url_unresolved": _("The name %(host)s cannot be resolved."),
    "registry_with_path": _("Enter only the host here; the repository has a field of its own."),
    "repository_malformed": _("“%(name)s” is not a valid repository name."),
}  # fmt: skip


def text_of(refusal: ProjectInputError) -> str:
    """Return the text of an error in the active language."""
    text = _TEXTS.get(refusal.code)
    if text is None:
        return gettext("Refused: %(code)s") % {"code": refusal.code}
    return str(text) % refusal.params if refusal.params else str(text)
