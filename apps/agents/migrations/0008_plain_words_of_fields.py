# ruff: noqa: E501

import django.core.validators
from django.db import migrations, models

import apps.agents.hosts.models
import apps.agents.models


class Migration(migrations.Migration):
    dependencies = [
        ("agents", "0007_heartbeats"),
    ]

    operations = [
        migrations.AlterModelOptions(
            name="agentsample",
            options={
                "ordering": ["agent", "at"],
                "verbose_name": "agent sample",
                "verbose_name_plural": "agent samples",
            },
        ),
        migrations.AlterModelOptions(
            name="allocation",
            options={
                "ordering": ["-id"],
                "verbose_name": "agent assignment",
                "verbose_name_plural": "agent assignments",
            },
        ),
        migrations.AlterModelOptions(
            name="hostledger",
            options={"verbose_name": "share table", "verbose_name_plural": "share tables"},
        ),
        migrations.AlterField(
            model_name="agent",
            name="boot",
            field=models.CharField(blank=True, max_length=32, verbose_name="process instance"),
        ),
        migrations.AlterField(
            model_name="agent",
            name="mode",
            field=models.CharField(
                choices=[
                    ("enabled", "enabled"),
                    ("draining", "draining"),
                    ("disabled", "disabled"),
                ],
                default="enabled",
                help_text="A draining agent gets no new runs; a disabled one gets no requests at all.",
                max_length=10,
                verbose_name="mode",
            ),
        ),
        migrations.AlterField(
            model_name="agent",
            name="problems",
            field=models.JSONField(
                blank=True,
                default=list,
                help_text="Problems for the operator.",
                verbose_name="problems",
            ),
        ),
        migrations.AlterField(
            model_name="agent",
            name="qps",
            field=models.FloatField(
                default=0.0, help_text="Downloads per second over the last 5 s.", verbose_name="QPS"
            ),
        ),
        migrations.AlterField(
            model_name="agent",
            name="sampled_at",
            field=models.DateTimeField(
                blank=True, help_text="Minute of the newest sample.", null=True
            ),
        ),
        migrations.AlterField(
            model_name="agent",
            name="switched_at",
            field=models.DateTimeField(blank=True, null=True, verbose_name="mode changed at"),
        ),
        migrations.AlterField(
            model_name="agent",
            name="types",
            field=models.JSONField(
                blank=True,
                default=apps.agents.models.plain_types,
                help_text="Types of downloader that it can create.",
                verbose_name="types",
            ),
        ),
        migrations.AlterField(
            model_name="allocation",
            name="asked",
            field=models.PositiveIntegerField(default=0, verbose_name="requested"),
        ),
        migrations.AlterField(
            model_name="hostrule",
            name="concurrency",
            field=models.PositiveIntegerField(
                blank=True,
                help_text="Requests in progress at once; 0 is unlimited, empty uses the settings.",
                null=True,
                validators=[django.core.validators.MinValueValidator(0)],
                verbose_name="concurrency",
            ),
        ),
        migrations.AlterField(
            model_name="hostrule",
            name="host",
            field=models.CharField(
                help_text="Such as example.com, or *.example.com for all of its subdomains.",
                max_length=253,
                unique=True,
                validators=[apps.agents.hosts.models.validate_host],
                verbose_name="host",
            ),
        ),
        migrations.AlterField(
            model_name="hostrule",
            name="obey_robots",
            field=models.BooleanField(
                blank=True,
                help_text="Unknown leaves the choice to the job.",
                null=True,
                verbose_name="obey robots.txt",
            ),
        ),
        migrations.AlterField(
            model_name="hostrule",
            name="requests_per_second",
            field=models.FloatField(
                blank=True,
                help_text="Limit for all runs together; 0 is unlimited, empty uses the settings.",
                null=True,
                validators=[apps.agents.hosts.models.validate_rate],
                verbose_name="requests per second",
            ),
        ),
        migrations.AlterField(
            model_name="hostrule",
            name="stopped",
            field=models.BooleanField(
                default=False,
                help_text="All requests to this host are deferred.",
                verbose_name="stopped",
            ),
        ),
        migrations.AlterField(
            model_name="hoststate",
            name="blocked_until",
            field=models.DateTimeField(blank=True, null=True, verbose_name="paused until"),
        ),
        migrations.AlterField(
            model_name="hoststate",
            name="held",
            field=models.PositiveIntegerField(default=0, verbose_name="deferred"),
        ),
        migrations.AlterField(
            model_name="hoststate",
            name="in_flight",
            field=models.PositiveIntegerField(default=0, verbose_name="in progress"),
        ),
    ]
