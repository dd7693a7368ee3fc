"""The real bash as a judge: scripts run where only recording stubs can be reached."""
