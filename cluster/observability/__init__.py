"""Metrics as operators see them: one table, the exporter to Ray, dashboards, rules and their documentation."""
