"""Seeds as a spider uses them: added, worked on, finished."""
