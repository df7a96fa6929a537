"""Audit: which samples the ranks really drew, counted, and said in words."""

from fastshard.audit.coverage import Coverage, format_coverage, measure_coverage, problems, repeated_orders

__all__ = ["Coverage", "format_coverage", "measure_coverage", "problems", "repeated_orders"]
