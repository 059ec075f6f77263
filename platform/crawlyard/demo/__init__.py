"""The demo: an own data folder, a sample site, a sample job, and the whole box around it."""
