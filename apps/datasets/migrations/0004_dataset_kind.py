from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("datasets", "0003_run_settled"), ("projects", "0007_spiders_of_images")]

    operations = [
        migrations.RemoveConstraint(model_name="dataset", name="datasets_name_once"),
        migrations.AddField(
            model_name="dataset",
            name="kind",
            field=models.CharField(
                choices=[("items", "Items"), ("requests", "Requests"), ("pages", "Pages")],
                db_default="items",
                default="items",
                max_length=8,
                verbose_name="kind",
            ),
        ),
        migrations.AddConstraint(
            model_name="dataset",
            constraint=models.UniqueConstraint(
                fields=("project", "kind", "name"), name="datasets_name_once"
            ),
        ),
        migrations.AddConstraint(
            model_name="dataset",
            constraint=models.CheckConstraint(
                condition=models.Q(("kind__in", ["items", "requests", "pages"])),
                name="datasets_kind_known",
            ),
        ),
    ]
