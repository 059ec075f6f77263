# ruff: noqa: E501
# fmt: off

import django.core.validators
import django.db.models.deletion
from django.db import migrations, models

import apps.jobs.arguments
import apps.jobs.engine.cron
import apps.jobs.engine.retry
import apps.jobs.models.execution_rules
import apps.jobs.models.validators
import apps.runtime.fields


class Migration(migrations.Migration):

    dependencies = [
        ('jobs', '0016_pace_of_the_spider_and_outcomes'),
        ('projects', '0007_texts'),
        ('seeds', '0002_resources_in_lease'),
    ]

    operations = [
        migrations.AlterField(
            model_name='job',
            name='agents',
            field=models.PositiveIntegerField(default=0, help_text='Number of agents; 0 means all with the policy random, and one with fixed or chained.', validators=[django.core.validators.MaxValueValidator(10000)], verbose_name='agents'),
        ),
        migrations.AlterField(
            model_name='job',
            name='arguments',
            field=models.JSONField(blank=True, default=dict, help_text='A JSON object that the spider receives.', validators=[apps.jobs.arguments.check_arguments], verbose_name='arguments'),
        ),
        migrations.AlterField(
            model_name='job',
            name='command',
            field=models.JSONField(blank=True, default=list, help_text='Program and arguments as a JSON list of texts, instead of a spider.', validators=[apps.jobs.models.execution_rules.validate_command], verbose_name='command'),
        ),
        migrations.AlterField(
            model_name='job',
            name='cookies',
            field=apps.runtime.fields.SecretTextField(blank=True, default='', help_text='Initial cookies: "name=value; name=value" or a JSON object; never shown again.', verbose_name='cookies'),
        ),
        migrations.AlterField(
            model_name='job',
            name='cpu_limit',
            field=models.FloatField(blank=True, help_text="Cores; leave empty for the installation's default.", null=True, validators=[django.core.validators.MinValueValidator(0.01), django.core.validators.MaxValueValidator(256.0), apps.jobs.models.execution_rules.validate_finite], verbose_name='CPU limit'),
        ),
        migrations.AlterField(
            model_name='job',
            name='cron',
            field=models.CharField(blank=True, help_text='minute hour day month weekday, such as 0 6 * * 1-5; leave empty for no schedule.', max_length=100, validators=[apps.jobs.engine.cron.validate_cron], verbose_name='cron'),
        ),
        migrations.AlterField(
            model_name='job',
            name='cut',
            field=models.JSONField(blank=True, default=list, help_text='Applied in order on the agent, to reduce what is sent back.', validators=[apps.jobs.models.validators.validate_cut_rules], verbose_name='cut rules'),
        ),
        migrations.AlterField(
            model_name='job',
            name='decode_html',
            field=models.BooleanField(default=False, help_text='HTML entities are replaced by their characters.', verbose_name='decode entities'),
        ),
        migrations.AlterField(
            model_name='job',
            name='download_retries',
            field=models.PositiveSmallIntegerField(blank=True, help_text="Number of retries after a refused connection, HTTP 429 or 5xx. Leave empty to use the spider's own number (5 by default).", null=True, validators=[django.core.validators.MaxValueValidator(1000)], verbose_name='download retries'),
        ),
        migrations.AlterField(
            model_name='job',
            name='downloader',
            field=models.CharField(choices=[('http', 'HTTP'), ('impersonate', 'HTTP like a browser'), ('browser', 'browser'), ('file', 'files on the agent')], default='http', help_text='Only agents that support this type are assigned.', max_length=12, verbose_name='downloader'),
        ),
        migrations.AlterField(
            model_name='job',
            name='encoding',
            field=models.CharField(blank=True, help_text='Overrides the encoding that pages declare, such as gb18030; leave empty to use theirs.', max_length=40, validators=[apps.jobs.models.validators.validate_encoding], verbose_name='encoding'),
        ),
        migrations.AlterField(
            model_name='job',
            name='environment',
            field=models.JSONField(blank=True, default=dict, help_text='A JSON object of texts.', validators=[apps.jobs.models.execution_rules.validate_environment], verbose_name='environment'),
        ),
        migrations.AlterField(
            model_name='job',
            name='fed_from_outside',
            field=models.BooleanField(default=False, help_text='A run without requests waits 30 s for new ones before it ends.', verbose_name='fed from outside'),
        ),
        migrations.AlterField(
            model_name='job',
            name='frontier',
            field=models.ForeignKey(blank=True, help_text='The runs add seeds to this frontier and crawl them.', null=True, on_delete=django.db.models.deletion.PROTECT, related_name='jobs', to='seeds.frontier', verbose_name='frontier'),
        ),
        migrations.AlterField(
            model_name='job',
            name='host_labels',
            field=models.JSONField(blank=True, default=dict, help_text='The job runs only on hosts with all of these labels.', validators=[apps.jobs.models.execution_rules.validate_host_labels], verbose_name='host labels'),
        ),
        migrations.AlterField(
            model_name='job',
            name='image',
            field=models.ForeignKey(blank=True, help_text='An image of a successful build; without one runs are local processes.', null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to='projects.image', verbose_name='image'),
        ),
        migrations.AlterField(
            model_name='job',
            name='impersonate',
            field=models.CharField(default='chrome', help_text='For the downloader “HTTP like a browser”, a profile name of curl_cffi.', max_length=40, validators=[django.core.validators.RegexValidator('^[a-z][a-z0-9_]*\\Z', 'Enter a name such as chrome, firefox or safari.')], verbose_name='browser profile'),
        ),
        migrations.AlterField(
            model_name='job',
            name='max_body_bytes',
            field=models.PositiveIntegerField(default=8388608, help_text='Bytes; longer responses are cut off. 8388608 is 8 MiB.', validators=[django.core.validators.MinValueValidator(1), django.core.validators.MaxValueValidator(268435456)], verbose_name='maximum body size'),
        ),
        migrations.AlterField(
            model_name='job',
            name='max_redirects',
            field=models.PositiveSmallIntegerField(default=10, validators=[django.core.validators.MaxValueValidator(50)], verbose_name='maximum redirects'),
        ),
        migrations.AlterField(
            model_name='job',
            name='max_run_seconds',
            field=models.PositiveIntegerField(blank=True, help_text='Seconds; a run that takes longer is stopped and fails.', null=True, validators=[django.core.validators.MinValueValidator(1), django.core.validators.MaxValueValidator(31622400)], verbose_name='time limit'),
        ),
        migrations.AlterField(
            model_name='job',
            name='memory_limit_bytes',
            field=models.PositiveBigIntegerField(blank=True, help_text="Bytes; leave empty for the installation's default.", null=True, validators=[django.core.validators.MinValueValidator(16777216), django.core.validators.MaxValueValidator(1099511627776)], verbose_name='memory limit'),
        ),
        migrations.AlterField(
            model_name='job',
            name='misfire',
            field=models.CharField(choices=[('skip', 'skip: list as missed'), ('once', 'catch up the last, list the others as missed'), ('all', 'catch up all')], default='once', help_text='What happens to planned runs that could not be started in time.', max_length=10, verbose_name='misfire policy'),
        ),
        migrations.AlterField(
            model_name='job',
            name='no_answer_seconds',
            field=models.FloatField(blank=True, help_text="Seconds without any answer to open requests after which the run fails. Leave empty to use the spider's own setting (300 unless it sets one).", null=True, validators=[django.core.validators.MinValueValidator(1), django.core.validators.MaxValueValidator(86400.0)], verbose_name='no-answer timeout'),
        ),
        migrations.AlterField(
            model_name='job',
            name='obey_robots',
            field=models.BooleanField(default=True, help_text="Pages that a site's robots.txt disallows are skipped, and its crawl delay is respected.", verbose_name='obey robots.txt'),
        ),
        migrations.AlterField(
            model_name='job',
            name='overlap',
            field=models.CharField(choices=[('skip', 'skip the new run'), ('queue', 'queue the new run'), ('replace', 'stop the active run, then start'), ('allow', 'run both')], default='skip', help_text='What happens to a planned run while an earlier one is active.', max_length=10, verbose_name='overlap policy'),
        ),
        migrations.AlterField(
            model_name='job',
            name='policy',
            field=models.CharField(choices=[('random', 'random: over all agents'), ('fixed', 'fixed: some agents, chosen at the start'), ('chained', 'chained: fixed, and links stay with the agent of their page')], default='random', max_length=10, verbose_name='download policy'),
        ),
        migrations.AlterField(
            model_name='job',
            name='priority',
            field=models.SmallIntegerField(default=0, help_text='A waiting run of higher priority is placed first.', validators=[django.core.validators.MinValueValidator(-100), django.core.validators.MaxValueValidator(100)], verbose_name='priority'),
        ),
        migrations.AlterField(
            model_name='job',
            name='publish_retries',
            field=models.PositiveIntegerField(blank=True, help_text="Retries, one a second, while the broker is unreachable, before the run fails. Leave empty to use the spider's own setting (60 unless it sets one).", null=True, validators=[django.core.validators.MaxValueValidator(604800)], verbose_name='broker retries'),
        ),
        migrations.AlterField(
            model_name='job',
            name='redial',
            field=models.BooleanField(default=False, help_text='The agent may change its IP with its configured redial command.', verbose_name='redial'),
        ),
        migrations.AlterField(
            model_name='job',
            name='request_timeout_seconds',
            field=models.FloatField(blank=True, help_text="Seconds without an answer until the spider repeats a request. Leave empty to use the spider's own setting (15 unless it sets one).", null=True, validators=[django.core.validators.MinValueValidator(0.1), django.core.validators.MaxValueValidator(3600.0)], verbose_name='request timeout'),
        ),
        migrations.AlterField(
            model_name='job',
            name='retry_rules',
            field=models.JSONField(blank=True, default=list, help_text='A JSON list; the first rule that matches how a run ended applies, such as [{"on": "lost", "retries": 1}, {"on": "failed", "codes": [137], "retries": 3, "delay_seconds": 60}].', validators=[apps.jobs.engine.retry.validate_retry_rules], verbose_name='retry rules'),
        ),
        migrations.AlterField(
            model_name='job',
            name='secrets',
            field=apps.runtime.fields.SecretTextField(blank=True, default='', help_text='A JSON object of texts; encrypted, never shown again.', verbose_name='secret environment'),
        ),
        migrations.AlterField(
            model_name='job',
            name='spider',
            field=models.CharField(blank=True, help_text='module:Class, importable in the image or from SPIDERS_DIR.', max_length=200, validators=[django.core.validators.RegexValidator('^[A-Za-z_]\\w*(\\.[A-Za-z_]\\w*)*:[A-Za-z_]\\w*\\Z', 'Write it as module:Class, for example yardspider.site:SiteSpider.')], verbose_name='spider'),
        ),
        migrations.AlterField(
            model_name='job',
            name='switch_pattern',
            field=models.CharField(blank=True, help_text='An RE2 expression for blocked responses: the agent switches its IP and retries them. The text begins with the status line, as in HTTP 403.', max_length=1000, validators=[apps.jobs.models.validators.validate_pattern], verbose_name='switch pattern'),
        ),
        migrations.AlterField(
            model_name='job',
            name='switch_retries',
            field=models.PositiveSmallIntegerField(default=3, help_text='Retries of a request with another IP.', validators=[django.core.validators.MaxValueValidator(100)], verbose_name='IP switches'),
        ),
        migrations.AlterField(
            model_name='job',
            name='tags',
            field=models.JSONField(blank=True, default=list, help_text='Words to find and group jobs by.', validators=[apps.jobs.models.execution_rules.validate_tags], verbose_name='tags'),
        ),
        migrations.AlterField(
            model_name='job',
            name='time_zone',
            field=models.CharField(default='UTC', help_text='Such as Asia/Shanghai.', max_length=50, validators=[apps.jobs.engine.cron.validate_time_zone], verbose_name='time zone'),
        ),
        migrations.AlterField(
            model_name='job',
            name='timeout_retries',
            field=models.PositiveSmallIntegerField(blank=True, help_text="Leave empty to use the spider's own setting (20 unless it sets one).", null=True, validators=[django.core.validators.MaxValueValidator(1000)], verbose_name='retries after a timeout'),
        ),
        migrations.AlterField(
            model_name='job',
            name='timeout_seconds',
            field=models.FloatField(default=15.0, help_text='Seconds, including the body.', validators=[django.core.validators.MinValueValidator(0.1), django.core.validators.MaxValueValidator(600.0)], verbose_name='download timeout'),
        ),
        migrations.AlterField(
            model_name='job',
            name='use_cookies',
            field=models.BooleanField(default=True, help_text='Each downloader keeps and sends back the cookies of its sites.', verbose_name='keep cookies'),
        ),
        migrations.AlterField(
            model_name='job',
            name='use_proxy',
            field=models.BooleanField(default=False, help_text='The proxies that are configured on the agent.', verbose_name='use proxies'),
        ),
        migrations.AlterField(
            model_name='job',
            name='user_agent',
            field=models.CharField(blank=True, help_text="Leave empty for Crawlyard, or for the browser's own where one is used or imitated.", max_length=300, validators=[apps.jobs.models.validators.validate_header_text], verbose_name='user agent'),
        ),
        migrations.AlterField(
            model_name='joblink',
            name='condition',
            field=models.CharField(choices=[('succeeded', 'succeeded'), ('failed', 'failed'), ('always', 'ended')], default='succeeded', max_length=10, verbose_name='condition'),
        ),
        migrations.AlterField(
            model_name='run',
            name='boot',
            field=models.CharField(blank=True, help_text='Changes with each start of the run.', max_length=16),
        ),
        migrations.AlterField(
            model_name='runcommand',
            name='action',
            field=models.CharField(choices=[('pause', 'pause'), ('resume', 'resume'), ('exit', 'exit'), ('restart', 'restart'), ('freeze', 'freeze'), ('thaw', 'thaw'), ('tune', 'tune')], max_length=10, verbose_name='action'),
        ),
        migrations.AlterField(
            model_name='runcommand',
            name='settings',
            field=models.JSONField(blank=True, default=dict, help_text='New settings of the run.', verbose_name='settings'),
        ),
    ]
