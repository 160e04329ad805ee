# Written by bedplate. New files are the person's and readable to the group, nobody else's.
umask 027
