"""Everything a person looks at: tables, pictures, progress."""
