# ruff: noqa: E501
# fmt: off

import django.core.validators
from django.db import migrations, models

import apps.projects.models.validators
import apps.runtime.fields


class Migration(migrations.Migration):

    dependencies = [
        ('projects', '0006_restorable'),
    ]

    operations = [
        migrations.AlterField(
            model_name='build',
            name='no_cache',
            field=models.BooleanField(default=False, help_text='Cached layers of earlier builds are not used.', verbose_name='without cache'),
        ),
        migrations.AlterField(
            model_name='build',
            name='step',
            field=models.CharField(blank=True, choices=[('', 'not started'), ('clone', 'clone'), ('prepare', 'prepare'), ('build', 'build'), ('check', 'check'), ('store', 'store')], default='', max_length=10, verbose_name='step'),
        ),
        migrations.AlterField(
            model_name='delivery',
            name='repeats',
            field=models.PositiveIntegerField(default=0, help_text='Number of repetitions of the same delivery.', verbose_name='repeats'),
        ),
        migrations.AlterField(
            model_name='project',
            name='build_arguments',
            field=models.JSONField(blank=True, default=dict, help_text='A JSON object of texts; not for secrets, which would stay readable in the image.', validators=[apps.projects.models.validators.validate_build_arguments], verbose_name='build arguments'),
        ),
        migrations.AlterField(
            model_name='project',
            name='build_script',
            field=models.TextField(blank=True, help_text="The text of a Dockerfile, used instead of the repository's own.", max_length=65536, verbose_name='build script'),
        ),
        migrations.AlterField(
            model_name='project',
            name='builds_enabled',
            field=models.BooleanField(default=True, help_text='A pushed tag that fits the template is built at once.', verbose_name='build tags'),
        ),
        migrations.AlterField(
            model_name='project',
            name='dockerfile',
            field=models.CharField(default='Dockerfile', help_text='Path in the repository.', max_length=200, validators=[apps.projects.models.validators.validate_dockerfile], verbose_name='Dockerfile'),
        ),
        migrations.AlterField(
            model_name='project',
            name='git_password',
            field=apps.runtime.fields.SecretTextField(blank=True, default='', help_text='Encrypted; never shown again.', verbose_name='git password or token'),
        ),
        migrations.AlterField(
            model_name='project',
            name='git_url',
            field=models.CharField(blank=True, help_text='https://, http:// or ssh://; builds clone only this address.', max_length=500, validators=[apps.projects.models.validators.validate_git_url], verbose_name='git address'),
        ),
        migrations.AlterField(
            model_name='project',
            name='max_image_bytes',
            field=models.PositiveBigIntegerField(default=4294967296, help_text='Bytes; a larger image is removed and the build fails.', validators=[django.core.validators.MinValueValidator(1048576), django.core.validators.MaxValueValidator(107374182400)], verbose_name='maximum image size'),
        ),
        migrations.AlterField(
            model_name='project',
            name='registry_password',
            field=apps.runtime.fields.SecretTextField(blank=True, default='', help_text='Encrypted; never shown again.', verbose_name='registry password or token'),
        ),
        migrations.AlterField(
            model_name='project',
            name='registry_url',
            field=models.CharField(blank=True, help_text='Registry that images are pushed to, such as https://registry.example.com.', max_length=300, validators=[apps.projects.models.validators.validate_registry_url], verbose_name='registry'),
        ),
        migrations.AlterField(
            model_name='project',
            name='tag_template',
            field=models.CharField(default='{release}/{name}/{version}', help_text='Format of tags; git allows / - _ between the parts, but no colon.', max_length=100, validators=[apps.projects.models.validators.validate_tag_template], verbose_name='tag template'),
        ),
        migrations.AlterField(
            model_name='project',
            name='webhook_secret',
            field=apps.runtime.fields.SecretTextField(blank=True, default='', help_text='Signs deliveries; generated with the project.', verbose_name='webhook secret'),
        ),
    ]
