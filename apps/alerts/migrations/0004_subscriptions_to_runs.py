import django.db.models.deletion
import django.utils.timezone
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("alerts", "0003_more_kinds_of_channels"),
        ("jobs", "0021_requests_made_again"),
        ("projects", "0007_spiders_of_images"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.AddField(
            model_name="channel",
            name="person",
            field=models.OneToOneField(
                blank=True,
                editable=False,
                null=True,
                on_delete=django.db.models.deletion.CASCADE,
                related_name="+",
                to=settings.AUTH_USER_MODEL,
                verbose_name="user",
            ),
        ),
        migrations.AddField(
            model_name="notice",
            name="facts",
            field=models.JSONField(blank=True, db_default={}, default=dict, verbose_name="facts"),
        ),
        migrations.AddField(
            model_name="notice",
            name="run",
            field=models.BigIntegerField(blank=True, null=True, verbose_name="run"),
        ),
        migrations.AlterField(
            model_name="notice",
            name="channel_name",
            field=models.CharField(max_length=151, verbose_name="channel"),
        ),
        migrations.AddIndex(
            model_name="notice",
            index=models.Index(
                condition=models.Q(("run__isnull", False)),
                fields=["run"],
                name="alerts_notices_of_run",
            ),
        ),
        migrations.CreateModel(
            name="RunSubscription",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                (
                    "channel",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="subscriptions",
                        to="alerts.channel",
                        verbose_name="channel",
                    ),
                ),
                (
                    "project",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="+",
                        to="projects.project",
                        verbose_name="project",
                    ),
                ),
                (
                    "job",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="+",
                        to="jobs.job",
                        verbose_name="job",
                    ),
                ),
                ("every_end", models.BooleanField(default=False, verbose_name="each end of a run")),
                (
                    "created_at",
                    models.DateTimeField(
                        default=django.utils.timezone.now, verbose_name="created at"
                    ),
                ),
                (
                    "created_by",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
                        verbose_name="by",
                    ),
                ),
            ],
            options={
                "verbose_name": "subscription to runs",
                "verbose_name_plural": "subscriptions to runs",
                "ordering": ["-id"],
                "constraints": [
                    models.UniqueConstraint(
                        fields=("channel", "job"), name="alerts_subscribed_job_once"
                    ),
                    models.UniqueConstraint(
                        condition=models.Q(("job", None)),
                        fields=("channel", "project"),
                        name="alerts_subscribed_project_once",
                    ),
                    models.UniqueConstraint(
                        condition=models.Q(("job", None), ("project", None)),
                        fields=("channel",),
                        name="alerts_subscribed_all_once",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("job", None), ("project__isnull", False), _connector="OR"
                        ),
                        name="alerts_subscribed_job_of_project",
                    ),
                ],
            },
        ),
    ]
