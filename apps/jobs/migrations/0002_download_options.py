import apps.jobs.models.validators
import apps.runtime.fields
import django.core.validators
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('jobs', '0001_initial'),
        ('projects', '0002_default_project'),
    ]

    operations = [
        migrations.RemoveConstraint(
            model_name='job',
            name='jobs_job_policy_known',
        ),
        migrations.AddField(
            model_name='job',
            name='agents',
            field=models.PositiveIntegerField(default=0, help_text='how many; 0 is all of them with the policy random, one with fixed and chained', validators=[django.core.validators.MaxValueValidator(10000)], verbose_name='agents'),
        ),
        migrations.AddField(
            model_name='job',
            name='cookies',
            field=apps.runtime.fields.SecretTextField(blank=True, default='', help_text='sent from the start: "name=value; name=value" or a JSON object; never shown', verbose_name='cookies'),
        ),
        migrations.AddField(
            model_name='job',
            name='cut',
            field=models.JSONField(blank=True, default=list, help_text='applied one after another on the agent, so that less travels back', validators=[apps.jobs.models.validators.validate_cut_rules], verbose_name='cut rules'),
        ),
        migrations.AddField(
            model_name='job',
            name='decode_html',
            field=models.BooleanField(default=False, help_text='texts arrive with HTML entities turned into the characters they stand for', verbose_name='resolve entities'),
        ),
        migrations.AddField(
            model_name='job',
            name='download_retries',
            field=models.PositiveSmallIntegerField(blank=True, help_text="after a refused connection, HTTP 429 or 5xx; empty is the spider's own, as a rule 5", null=True, validators=[django.core.validators.MaxValueValidator(1000)], verbose_name='retries of a download'),
        ),
        migrations.AddField(
            model_name='job',
            name='downloader',
            field=models.CharField(choices=[('http', 'HTTP'), ('impersonate', 'HTTP like a browser'), ('browser', 'browser'), ('file', 'files of the agent')], default='http', help_text='only agents that can make this type are given to the job', max_length=12, verbose_name='downloader'),
        ),
        migrations.AddField(
            model_name='job',
            name='encoding',
            field=models.CharField(blank=True, help_text='of pages that tell none or a wrong one, such as gb18030; empty believes them', max_length=40, validators=[apps.jobs.models.validators.validate_encoding], verbose_name='encoding'),
        ),
        migrations.AddField(
            model_name='job',
            name='fed_from_outside',
            field=models.BooleanField(default=False, help_text='with nothing to do the run waits 30 s for more before it ends', verbose_name='fed from outside'),
        ),
        migrations.AddField(
            model_name='job',
            name='follow_redirects',
            field=models.BooleanField(default=True, verbose_name='follow redirects'),
        ),
        migrations.AddField(
            model_name='job',
            name='impersonate',
            field=models.CharField(default='chrome', help_text='for the downloader HTTP like a browser, as curl_cffi names them', max_length=40, validators=[django.core.validators.RegexValidator('^[a-z][a-z0-9_]*$', 'A name such as chrome, firefox or safari is needed.')], verbose_name='imitated browser'),
        ),
        migrations.AddField(
            model_name='job',
            name='max_body_bytes',
            field=models.PositiveIntegerField(default=8388608, help_text='bytes; the rest of a longer answer is cut off. 8388608 are 8 MiB', validators=[django.core.validators.MinValueValidator(1), django.core.validators.MaxValueValidator(268435456)], verbose_name='largest body'),
        ),
        migrations.AddField(
            model_name='job',
            name='max_redirects',
            field=models.PositiveSmallIntegerField(default=10, validators=[django.core.validators.MaxValueValidator(50)], verbose_name='most redirects'),
        ),
        migrations.AddField(
            model_name='job',
            name='obey_robots',
            field=models.BooleanField(default=True, help_text="what a host's robots.txt forbids is not fetched, its delays are kept", verbose_name='obey robots.txt'),
        ),
        migrations.AddField(
            model_name='job',
            name='redial',
            field=models.BooleanField(default=False, help_text="the agent may change its address by its owner's redial command", verbose_name='redial'),
        ),
        migrations.AddField(
            model_name='job',
            name='request_timeout_seconds',
            field=models.FloatField(blank=True, help_text="seconds without an answer until the spider sends it again; empty is the spider's own, as a rule 15", null=True, validators=[django.core.validators.MinValueValidator(0.1), django.core.validators.MaxValueValidator(3600.0)], verbose_name='time-out of a request'),
        ),
        migrations.AddField(
            model_name='job',
            name='switch_pattern',
            field=models.CharField(blank=True, help_text='an RE2 expression; an answer it matches was refused, and the agent switches its address and tries again. The text begins with the status line, as in HTTP 403', max_length=1000, validators=[apps.jobs.models.validators.validate_pattern], verbose_name='switch pattern'),
        ),
        migrations.AddField(
            model_name='job',
            name='switch_retries',
            field=models.PositiveSmallIntegerField(default=3, help_text='so often is a request tried again with another address', validators=[django.core.validators.MaxValueValidator(100)], verbose_name='switches'),
        ),
        migrations.AddField(
            model_name='job',
            name='timeout_retries',
            field=models.PositiveSmallIntegerField(blank=True, help_text="empty is the spider's own, as a rule 20", null=True, validators=[django.core.validators.MaxValueValidator(1000)], verbose_name='retries after a time-out'),
        ),
        migrations.AddField(
            model_name='job',
            name='timeout_seconds',
            field=models.FloatField(default=15.0, help_text='seconds, the body included', validators=[django.core.validators.MinValueValidator(0.1), django.core.validators.MaxValueValidator(600.0)], verbose_name='time-out of a download'),
        ),
        migrations.AddField(
            model_name='job',
            name='use_cookies',
            field=models.BooleanField(default=True, help_text='each downloader sends back the cookies its sites have set', verbose_name='keep cookies'),
        ),
        migrations.AddField(
            model_name='job',
            name='use_proxy',
            field=models.BooleanField(default=False, help_text="those the agent's owner has given it", verbose_name='use proxies'),
        ),
        migrations.AddField(
            model_name='job',
            name='user_agent',
            field=models.CharField(blank=True, help_text="empty: Crawlyard, or the browser's own where a browser is used or imitated", max_length=300, validators=[apps.jobs.models.validators.validate_header_text], verbose_name='user agent'),
        ),
        migrations.AlterField(
            model_name='job',
            name='policy',
            field=models.CharField(choices=[('random', 'random over all agents'), ('fixed', 'fixed: some agents, drawn at the start'), ('chained', 'chained: fixed, and links go to the agent of their page')], default='random', max_length=10, verbose_name='download policy'),
        ),
        migrations.AddConstraint(
            model_name='job',
            constraint=models.CheckConstraint(condition=models.Q(('policy__in', ['random', 'fixed', 'chained'])), name='jobs_job_policy_known'),
        ),
        migrations.AddConstraint(
            model_name='job',
            constraint=models.CheckConstraint(condition=models.Q(('downloader__in', ['http', 'impersonate', 'browser', 'file'])), name='jobs_job_downloader_known'),
        ),
    ]
