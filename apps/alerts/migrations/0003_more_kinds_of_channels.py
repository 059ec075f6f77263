from django.db import migrations, models


class Migration(migrations.Migration):
    contract = "more kinds of channels, which the previous version does not send"
    dependencies = [("alerts", "0002_field_terms")]

    operations = [
        migrations.RemoveConstraint(model_name="channel", name="alerts_channel_kind_known"),
        migrations.AddConstraint(
            model_name="channel",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    (
                        "kind__in",
                        [
                            "mail",
                            "sms",
                            "webhook",
                            "dingtalk",
                            "wecom",
                            "feishu",
                            "slack",
                            "teams",
                            "discord",
                            "telegram",
                            "pagerduty",
                            "opsgenie",
                            "ntfy",
                        ],
                    )
                ),
                name="alerts_channel_kind_known",
            ),
        ),
    ]
