from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("routing", "0005_due_by_state")]

    # The table keeps its name, so nothing changes in the database.
    operations = [
        migrations.SeparateDatabaseAndState(
            state_operations=[
                migrations.AlterModelTable("tally", "routing_tally"),
                migrations.RenameModel("Tally", "CounterChange"),
            ]
        )
    ]
