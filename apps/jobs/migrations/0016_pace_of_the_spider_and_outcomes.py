# ruff: noqa: E501

import django.core.validators
from django.db import migrations, models

import apps.jobs.models.execution_rules


class Migration(migrations.Migration):
    dependencies = [
        ("jobs", "0015_patience_of_runs"),
    ]

    operations = [
        migrations.AddField(
            model_name="job",
            name="max_failed_percent",
            field=models.FloatField(
                db_default=0.0,
                default=0.0,
                help_text="Percent of a run's requests. A run with more is shown as finished with errors.",
                validators=[
                    django.core.validators.MinValueValidator(0.0),
                    django.core.validators.MaxValueValidator(100.0),
                    apps.jobs.models.execution_rules.validate_finite,
                ],
                verbose_name="allowed failed requests",
            ),
        ),
        migrations.AddField(
            model_name="run",
            name="requests_failed",
            field=models.PositiveBigIntegerField(
                blank=True, null=True, verbose_name="failed requests"
            ),
        ),
        migrations.AddField(
            model_name="run",
            name="requests_total",
            field=models.PositiveBigIntegerField(blank=True, null=True, verbose_name="requests"),
        ),
        migrations.AlterField(
            model_name="job",
            name="concurrency",
            field=models.PositiveIntegerField(
                blank=True,
                help_text="Requests that may be unanswered at once. Leave empty to use the spider's own setting (100 unless it sets one).",
                null=True,
                validators=[
                    django.core.validators.MinValueValidator(1),
                    django.core.validators.MaxValueValidator(10000),
                ],
                verbose_name="window",
            ),
        ),
        migrations.AlterField(
            model_name="job",
            name="speed",
            field=models.FloatField(
                blank=True,
                help_text="Requests per second; 0 is unlimited, 0.1 is one every ten seconds. Leave empty to use the spider's own setting (1 unless it sets one).",
                null=True,
                validators=[
                    django.core.validators.MinValueValidator(0.0),
                    django.core.validators.MaxValueValidator(1000000.0),
                    apps.jobs.models.execution_rules.validate_finite,
                ],
                verbose_name="speed",
            ),
        ),
    ]
