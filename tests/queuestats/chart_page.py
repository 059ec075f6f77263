"""A page with charts, for the test of what draws them."""

from __future__ import annotations

from django.contrib import admin
from django.http import HttpRequest, HttpResponse
from django.template import engines
from django.urls import path

from crawlyard.urls import urlpatterns as own

PAGE = """{% extends "dashboard/page.html" %}{% load queuestats_tags %}
{% block page_script %}{% chart_media %}{% endblock %}
{% block content %}
<section class="cy-card">{% chart title="Waiting" source=one unit="" group="all" %}</section>
<section class="cy-card">
{% chart title="Rates" series=two unit="/s" group="all" span=300 %}
</section>
<section class="cy-card">{% chart title="Received" source=none unit="bytes/s" %}</section>
{% endblock %}"""


def charts(request: HttpRequest) -> HttpResponse:
    """Three charts of the project in the query."""
    points = f"/api/v1/projects/{request.GET['project']}/series/points"
    names = ("requests.created", "requests.processed")
    context = admin.site.each_context(request) | {
        "one": f"{points}?name=queue.waiting&label=news",
        "two": [{"source": f"{points}?name={name}&label=news", "title": name} for name in names],
        "none": f"{points}?name=nothing",
    }
    return HttpResponse(engines["django"].from_string(PAGE).render(context, request))


urlpatterns = [path("charts", charts), *own]
