"""Cutflows and N-1 tables: what each cut left, in the order that ran and in the written one."""
