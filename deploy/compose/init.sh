#!/bin/sh
# Makes secrets/ and .env once: passwords nobody has to think up. Changes nothing that is there.
# Usage: sh init.sh yard.example.org
set -eu
cd "$(dirname "$0")"
name="${1:?name this server, as people type it: sh init.sh yard.example.org}"
umask 022
# Files in it are read by the users inside the containers; the folder keeps everybody else out.
mkdir -p secrets && chmod 700 secrets
# What processes are given: the agents, all others, and whoever makes accounts for runs.
cd secrets && mkdir -p agent platform management && cd ..
if [ -s secrets/database_url ]; then
    # From the time when these were no folders, and seeds and records in the common database.
    (cd secrets && mv broker_management_url management/ &&
        mv secret_key secretbox_keys database_url requests_url logs_url broker_url redis_url platform/)
    cp secrets/platform/database_url secrets/platform/seeds_url
    cp secrets/platform/database_url secrets/platform/records_url
fi

password() { head -c 24 /dev/urandom | base64 | tr '+/' '-_'; }
key() { head -c 32 /dev/urandom | base64 | tr '+/' '-_'; }
# FILE: what is on standard input, unless the file is there.
keep() { [ -s "secrets/$1" ] || cat > "secrets/$1"; }

head -c 48 /dev/urandom | base64 -w 0 | keep platform/secret_key
key | keep platform/secretbox_keys
password | keep postgres_password
password | keep stores_password
password | keep rabbitmq_password
password | keep rabbitmq_accounts_password
password | keep redis_password
password | keep mongo_admin_password
password | keep mongo_app_password
password | keep elastic_password
head -c 600 /dev/urandom | base64 -w 0 | keep mongo_key
of() { cat "secrets/$1_password"; }

echo "postgresql://crawlyard:$(of postgres)@postgres:5432/crawlyard" | keep platform/database_url
stores="postgresql://crawlyard_stores:$(of stores)@postgres:5432/crawlyard_stores"
echo "$stores" | keep platform/seeds_url
echo "$stores" | keep platform/records_url
echo "amqp://crawlyard:$(of rabbitmq)@rabbitmq:5672/crawlyard" | keep platform/broker_url
keep agent/broker_url < secrets/platform/broker_url
echo "http://accounts:$(of rabbitmq_accounts)@rabbitmq:15672" | keep management/broker_management_url
echo "redis://crawlyard:$(of redis)@redis:6379/0" | keep platform/redis_url
echo "mongodb://crawlyard:$(of mongo_app)@mongo:27017/?replicaSet=rs0&authSource=admin" | keep platform/requests_url
echo "http://elastic:$(of elastic)@elasticsearch:9200" | keep platform/logs_url

cat <<SQL | keep postgres_stores
CREATE ROLE crawlyard_stores LOGIN PASSWORD '$(of stores)';
CREATE DATABASE crawlyard_stores OWNER crawlyard_stores;
SQL
{
    echo "user default off"
    echo "user crawlyard on >$(of redis) ~* &* +@all -@admin -@dangerous +info +flushdb +keys"
} | keep redis_acl
cat <<JSON | keep rabbitmq_definitions
{"vhosts": [{"name": "crawlyard"}],
 "users": [{"name": "crawlyard", "password": "$(of rabbitmq)", "tags": ""},
           {"name": "accounts", "password": "$(of rabbitmq_accounts)", "tags": "administrator"}],
 "permissions": [{"user": "crawlyard", "vhost": "crawlyard", "configure": ".*", "write": ".*", "read": ".*"}]}
JSON
if [ ! -s secrets/tls_certificate ]; then
    # Until a real one takes its place.
    openssl req -x509 -newkey rsa:2048 -nodes -days 365 -subj "/CN=$name" \
        -addext "subjectAltName=DNS:$name" -keyout secrets/tls_key -out secrets/tls_certificate 2>/dev/null
fi
find secrets -type f -exec chmod 444 {} +

if [ ! -s .env ]; then
    umask 077
    cat > .env <<ENV
COMPOSE_PROJECT_NAME=crawlyard
# Without the second file where all the stores are elsewhere.
COMPOSE_FILE=compose.yaml:compose.stores.yaml
CRAWLYARD_IMAGE=crawlyard:0.1.0
ALLOWED_HOSTS=$name,localhost
PUBLIC_URL=https://$name
DOCKER_GROUP=$(getent group docker | cut -d: -f3 | grep . || echo 999)
RUNNER_NAME=$(hostname)
RUNNER_DATA=/var/lib/crawlyard/runner
MONGO_ADMIN_PASSWORD=$(of mongo_admin)
MONGO_APP_PASSWORD=$(of mongo_app)
ELASTIC_PASSWORD=$(of elastic)
ENV
fi
mkdir -p "$(sed -n 's/^RUNNER_DATA=//p' .env)" && chown 10001:10001 "$(sed -n 's/^RUNNER_DATA=//p' .env)"
echo "made: $(pwd)/secrets and $(pwd)/.env"
