#!/bin/sh
# Answers git, which asks for the user name and then the password of a repository. A file of the
# installation: folders for temporary files may forbid to execute what is written there.
[ -n "$CRAWLYARD_GIT_PASSWORD$CRAWLYARD_GIT_USERNAME" ] || exit 1
case "$1" in
[Uu]sername*) printf '%s\n' "$CRAWLYARD_GIT_USERNAME" ;;
*) printf '%s\n' "$CRAWLYARD_GIT_PASSWORD" ;;
esac
