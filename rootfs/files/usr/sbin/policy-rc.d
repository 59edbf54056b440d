#!/bin/sh
# No service manager runs here.
exit 101
