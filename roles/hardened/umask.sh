# Written by bedplate. New files are readable by the owner's group, not by others.
umask 027
