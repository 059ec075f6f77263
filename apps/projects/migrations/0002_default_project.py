"""Create the default project, which is used if no project is chosen."""

from django.db import migrations


def make_default(apps, schema_editor):
    project = apps.get_model("projects", "Project")
    project.objects.using(schema_editor.connection.alias).get_or_create(
        slug="default", defaults={"name": "Default"}
    )


class Migration(migrations.Migration):
    dependencies = [("projects", "0001_initial")]

    operations = [
        migrations.RunPython(
            make_default, migrations.RunPython.noop, hints={"empty_database": True}
        )
    ]
