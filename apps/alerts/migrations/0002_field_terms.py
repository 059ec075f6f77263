from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("alerts", "0001_initial")]

    # The tables keep their names, so nothing changes in the database.
    operations = [
        migrations.SeparateDatabaseAndState(
            state_operations=[
                migrations.AlterModelTable("seenhappening", "alerts_seenhappening"),
                migrations.RenameModel("SeenHappening", "ProcessedEvent"),
                migrations.AlterModelTable("lastinghappening", "alerts_lastinghappening"),
                migrations.RenameModel("LastingHappening", "OngoingCondition"),
            ]
        )
    ]
