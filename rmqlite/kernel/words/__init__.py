"""Words that every package uses: errors, limits, names, levels, the clock."""
