"""Metrics, their exporter, dashboards, rules, traces and logs."""
