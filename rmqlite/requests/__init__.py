"""The broker's requests and answers as plain values, one module per noun."""
