#!/bin/sh
# Gives each process an account of its own at the stores of compose.stores.yaml: makes it there, and
# a folder of secrets with it here. May be run again, as after an upgrade that brought a process.
# Usage, with the stores running and `migrate` done: sh accounts.sh && docker-compose up -d
set -eu
cd "$(dirname "$0")"
umask 022
accounts() {
    docker-compose run --rm --no-deps -T --user 0:0 -v "$(pwd)/secrets:/secrets" migrate \
        accounts "$@" --passwords /secrets/passwords
}

accounts files --from /run/secrets --into /secrets/accounts
# As in init.sh: the user of the containers reads them, and secrets/ lets nobody else in.
find secrets/accounts -type d -exec chmod 755 {} +
find secrets/accounts -type f -exec chmod 444 {} +

users=$(accounts rabbitmq) roles=$(accounts postgresql) rules=$(accounts redis)
echo "$users" | docker-compose exec -T rabbitmq \
    sh -c 'cat > /tmp/accounts.json && rabbitmqctl import_definitions /tmp/accounts.json; rm /tmp/accounts.json'
echo "$roles" | docker-compose exec -T postgres psql -q -v ON_ERROR_STOP=1 -U crawlyard
others=$(grep -v '^user crawlyard_' secrets/redis_acl)
printf '%s\n' "$others" "$rules" > secrets/redis_acl
# Nobody may change rules over the wire, so it reads them at its start.
docker-compose restart redis

grep -q compose.accounts.yaml .env || sed -i 's/^COMPOSE_FILE=.*/&:compose.accounts.yaml/' .env
echo "made: an account for each process; docker-compose up -d gives it to them"
