import django.core.validators
from django.db import migrations, models

import apps.jobs.models.execution_rules


class Migration(migrations.Migration):
    dependencies = [
        ("alerts", "0001_initial"),
    ]

    operations = [
        migrations.AlterModelOptions(
            name="notice",
            options={
                "ordering": ["-id"],
                "verbose_name": "notification",
                "verbose_name_plural": "notifications",
            },
        ),
        migrations.AlterModelOptions(
            name="yieldpolicy",
            options={"verbose_name": "yield watch", "verbose_name_plural": "yield watches"},
        ),
        migrations.AlterModelOptions(
            name="yieldwatch",
            options={"verbose_name": "yield status", "verbose_name_plural": "yield statuses"},
        ),
        migrations.AlterField(
            model_name="incident",
            name="key",
            field=models.CharField(blank=True, default="", max_length=200, verbose_name="object"),
        ),
        migrations.AlterField(
            model_name="incident",
            name="told_at",
            field=models.DateTimeField(blank=True, null=True, verbose_name="last notified at"),
        ),
        migrations.AlterField(
            model_name="incidentnote",
            name="what",
            field=models.CharField(
                choices=[
                    ("opened", "opened"),
                    ("reopened", "opened again"),
                    ("acknowledged", "acknowledged"),
                    ("snoozed", "snoozed"),
                    ("escalated", "escalated"),
                    ("repeated", "repeated"),
                    ("recovered", "recovered"),
                    ("closed", "closed"),
                ],
                max_length=32,
                verbose_name="what",
            ),
        ),
        migrations.AlterField(
            model_name="notice",
            name="problem",
            field=models.CharField(
                blank=True,
                choices=[
                    ("no_channel", "channel not found"),
                    ("off", "channel disabled"),
                    ("settings", "channel not configured correctly"),
                    ("address", "address not allowed"),
                    ("no_answer", "no answer"),
                    ("refused", "rejected by the recipient"),
                    ("too_many", "the other side has had too many"),
                ],
                default="",
                max_length=16,
                verbose_name="problem",
            ),
        ),
        migrations.AlterField(
            model_name="notice",
            name="state",
            field=models.CharField(
                choices=[
                    ("waiting", "waiting"),
                    ("sent", "sent"),
                    ("failed", "failed"),
                    ("dropped", "dropped"),
                ],
                default="waiting",
                max_length=16,
                verbose_name="state",
            ),
        ),
        migrations.AlterField(
            model_name="yieldpolicy",
            name="drop_below",
            field=models.FloatField(
                blank=True,
                default=0.5,
                help_text=(
                    "Alert when the number of items falls below this share of the usual number. "
                    "Leave empty to disable."
                ),
                null=True,
                validators=[
                    django.core.validators.MinValueValidator(0.01),
                    django.core.validators.MaxValueValidator(1.0),
                    apps.jobs.models.execution_rules.validate_finite,
                ],
                verbose_name="too few items",
            ),
        ),
        migrations.AlterField(
            model_name="yieldpolicy",
            name="failures_rise",
            field=models.FloatField(
                blank=True,
                default=0.3,
                help_text=(
                    "Alert when the failure rate exceeds the usual rate by this amount. "
                    "Leave empty to disable."
                ),
                null=True,
                validators=[
                    django.core.validators.MinValueValidator(0.01),
                    django.core.validators.MaxValueValidator(1.0),
                    apps.jobs.models.execution_rules.validate_finite,
                ],
                verbose_name="failed requests",
            ),
        ),
        migrations.AlterField(
            model_name="yieldpolicy",
            name="learn_from",
            field=models.DateTimeField(blank=True, null=True, verbose_name="baseline since"),
        ),
        migrations.AlterField(
            model_name="yieldpolicy",
            name="rise_above",
            field=models.FloatField(
                blank=True,
                default=5.0,
                help_text=(
                    "Alert when the number of items exceeds the usual number by this factor. "
                    "Leave empty to disable."
                ),
                null=True,
                validators=[
                    django.core.validators.MinValueValidator(1.1),
                    django.core.validators.MaxValueValidator(1000.0),
                    apps.jobs.models.execution_rules.validate_finite,
                ],
                verbose_name="too many items",
            ),
        ),
        migrations.AlterField(
            model_name="yieldpolicy",
            name="stale_times",
            field=models.FloatField(
                blank=True,
                default=3.0,
                help_text=(
                    "Alert when no run returned items for this many usual intervals. "
                    "Leave empty to disable."
                ),
                null=True,
                validators=[
                    django.core.validators.MinValueValidator(1.0),
                    django.core.validators.MaxValueValidator(100.0),
                    apps.jobs.models.execution_rules.validate_finite,
                ],
                verbose_name="nothing new",
            ),
        ),
    ]
