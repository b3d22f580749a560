"""Groups of the shipped limiters, by their behaviour when options change."""



BUCKETS = "gcra", "token_bucket", "leaky_bucket"
ALL = *BUCKETS, "fixed_window", "sliding_window_counter", "sliding_window_log", "rolling_window"
