# traffic.pl receive PORT: takes one connection, and prints each half second (time in seconds, bytes that came)
# traffic.pl send ADDRESS PORT CONGESTION-CONTROL UNTIL-SECONDS
use strict;
use warnings;
use Socket qw(:DEFAULT IPPROTO_TCP);

use constant {CLOCK_GETTIME => 228, CLOCK_MONOTONIC => 1, TCP_CONGESTION => 13, INTERVAL_S => 0.5};

sub monotonic_s {
    my $time = "\0" x 16;
    syscall(CLOCK_GETTIME, CLOCK_MONOTONIC, $time) == 0 or die "clock_gettime: $!";
    my ($seconds, $nanoseconds) = unpack "qq", $time;
    return $seconds + $nanoseconds / 1e9;
}

# Clocks that count from the boot are at 1 s when a run begins.
sub now_s { return monotonic_s() - 1 }

$| = 1;
socket(my $socket, PF_INET, SOCK_STREAM, 0) or die "socket: $!";
my $what = shift @ARGV;
if ($what eq "receive") {
    bind($socket, pack_sockaddr_in($ARGV[0], INADDR_ANY)) or die "bind: $!";
    listen($socket, 1) or die "listen: $!";
    accept(my $peer, $socket) or die "accept: $!";
    my ($end_s, $bytes) = (INTERVAL_S, 0);
    while (my $count = sysread($peer, my $data, 65536)) {
        for (my $now_s = now_s(); $now_s >= $end_s; $end_s += INTERVAL_S) {
            print "$end_s $bytes\n";
            $bytes = 0;
        }
        $bytes += $count;
    }
    print "$end_s $bytes\n";
} else {
    my ($address, $port, $congestion, $until_s) = @ARGV;
    setsockopt($socket, IPPROTO_TCP, TCP_CONGESTION, $congestion) or die "TCP_CONGESTION $congestion: $!";
    connect($socket, pack_sockaddr_in($port, inet_aton($address))) or die "connect: $!";
    my $data = "w" x 16384;
    while (now_s() < $until_s) {
        syswrite($socket, $data) or die "write: $!";
    }
}
