"""Results: outputs, ledger and cutflows of a run; kept, merged, grouped, compared, shown and exported."""
