"""Device mapping and load balance by classical predictors."""
