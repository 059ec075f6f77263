from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("configcenter", "0002_platform")]

    # The table keeps its name, so nothing changes in the database.
    operations = [
        migrations.SeparateDatabaseAndState(
            state_operations=[
                migrations.AlterModelTable("following", "configcenter_following"),
                migrations.RenameModel("Following", "ConfigSubscription"),
            ]
        )
    ]
