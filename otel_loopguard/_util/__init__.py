"""Small parts that everything may use."""
