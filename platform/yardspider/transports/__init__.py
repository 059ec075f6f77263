"""How requests leave a spider and answers come back: the platform, this process, or a test."""
