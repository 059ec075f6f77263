"""Plain Python part: settings, sharding, forecasts. No Django."""
