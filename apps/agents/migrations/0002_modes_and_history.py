import json

import apps.agents.models
import apps.runtime.fields
import django.db.models.deletion
from django.db import migrations, models


def switch_off(apps, schema_editor):
    # What was called disabled went on with the runs it served.
    apps.get_model('agents', 'Agent').objects.filter(enabled=False).update(mode='draining')


def switch_on(apps, schema_editor):
    apps.get_model('agents', 'Agent').objects.exclude(mode='enabled').update(enabled=False)


def seal_cookies(apps, schema_editor):
    for allocation in apps.get_model('agents', 'Allocation').objects.all().iterator():
        cookies = allocation.settings.pop('cookies', None)
        if cookies is not None:
            allocation.cookies = json.dumps(cookies) if cookies else ''
            allocation.save(update_fields=['settings', 'cookies'])


def open_cookies(apps, schema_editor):
    for allocation in apps.get_model('agents', 'Allocation').objects.exclude(settings={}).iterator():
        allocation.settings['cookies'] = json.loads(allocation.cookies or '{}')
        allocation.save(update_fields=['settings'])


class Migration(migrations.Migration):

    dependencies = [
        ('agents', '0001_initial'),
    ]

    operations = [
        migrations.CreateModel(
            name='AgentSample',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('at', models.DateTimeField(verbose_name='minute')),
                ('cpu_percent', models.FloatField(verbose_name='CPU')),
                ('free_memory_bytes', models.BigIntegerField(verbose_name='free memory')),
                ('downloaders', models.PositiveIntegerField(verbose_name='downloaders')),
                ('qps', models.FloatField(verbose_name='QPS')),
            ],
            options={
                'verbose_name': 'sample of an agent',
                'verbose_name_plural': 'samples of agents',
                'ordering': ['agent', 'at'],
            },
        ),
        migrations.AddField(
            model_name='agent',
            name='mode',
            field=models.CharField(choices=[('enabled', 'enabled'), ('draining', 'draining'), ('disabled', 'disabled')], default='enabled', help_text='a draining agent gets no new runs, a disabled one is sent nothing more at all', max_length=10, verbose_name='mode'),
        ),
        migrations.AddField(
            model_name='agent',
            name='problems',
            field=models.JSONField(blank=True, default=list, help_text='what its owner should look at', verbose_name='problems'),
        ),
        migrations.AddField(
            model_name='agent',
            name='sampled_at',
            field=models.DateTimeField(blank=True, help_text='the minute of the newest sample', null=True),
        ),
        migrations.AddField(
            model_name='agent',
            name='switched_at',
            field=models.DateTimeField(blank=True, null=True, verbose_name='switched at'),
        ),
        migrations.AddField(
            model_name='agent',
            name='types',
            field=models.JSONField(blank=True, default=apps.agents.models.plain_types, help_text='the types of downloader it can make', verbose_name='types'),
        ),
        migrations.AddField(
            model_name='allocation',
            name='cookies',
            field=apps.runtime.fields.SecretTextField(blank=True, default='', verbose_name='cookies'),
        ),
        migrations.RunPython(switch_off, switch_on),
        migrations.RunPython(seal_cookies, open_cookies),
        migrations.RemoveField(
            model_name='agent',
            name='enabled',
        ),
        migrations.AddConstraint(
            model_name='agent',
            constraint=models.CheckConstraint(condition=models.Q(('mode__in', ['enabled', 'draining', 'disabled'])), name='agents_agent_mode_known'),
        ),
        migrations.AddField(
            model_name='agentsample',
            name='agent',
            field=models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='samples', to='agents.agent', verbose_name='agent'),
        ),
        migrations.AddIndex(
            model_name='agentsample',
            index=models.Index(fields=['at'], name='agents_sample_at'),
        ),
        migrations.AddConstraint(
            model_name='agentsample',
            constraint=models.UniqueConstraint(fields=('agent', 'at'), name='agents_sample_one_a_minute'),
        ),
    ]
