#!/bin/sh
# Installs Spark with what it reads Iceberg tables by, and another DuckDB with its extension for
# them, for `make test-spark`. Needs Java 17 and Maven; what is there already is not fetched again.
# Usage: spark.sh PYTHON FOLDER
set -eu
python="$1" folder="$2"

[ -x "$folder/bin/spark-submit" ] || sh "$(dirname "$0")/install.sh" "$python" "$folder" \
    pyspark==4.0.1 duckdb==1.5.5 duckdb-extension-iceberg==1.5.5 duckdb-extension-avro==1.5.5
for artifact in org.apache.iceberg:iceberg-spark-runtime-4.0_2.13:1.10.0 \
    org.apache.iceberg:iceberg-aws-bundle:1.10.0 \
    org.xerial:sqlite-jdbc:3.49.1.0 org.postgresql:postgresql:42.7.7; do
    name="$(echo "$artifact" | cut -d: -f2-3 | tr : -).jar"
    [ -e "$folder/jars/$name" ] || mvn -q dependency:copy -Dartifact="$artifact" \
        -DoutputDirectory="$folder/jars"
done
