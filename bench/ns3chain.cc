// SPDX-License-Identifier: GPL-2.0-or-later
// The peer of `make bench`: the same chain, and the same TCP transfer, with ns-3's own models.
//
//   n1 ---- n2 ---- ... ---- nN       point-to-point links, static host routes between the ends
//
// udp: one datagram every size * 8 / rate seconds from n1 to nN (the DCE paper's figure 2).
// tcp: bulk transfer from n1 to nN. Prints the packets, or the bit/s, that arrived.
#include "ns3/applications-module.h"
#include "ns3/core-module.h"
#include "ns3/internet-module.h"
#include "ns3/network-module.h"
#include "ns3/point-to-point-module.h"

#include <cstdio>

using namespace ns3;

namespace
{
constexpr uint16_t PORT = 9;
const Time APP_START = Seconds(0.1);

struct Options
{
    uint32_t nodes = 2;
    double seconds = 50;
    uint32_t payloadBytes = 1470;
    std::string mode = "udp";
    std::string rate = "100Mbps";
    std::string linkRate = "1Gbps";
    std::string linkDelay = "1ms";
    std::string congestionControl = "ns3::TcpCubic";
    uint32_t bufferBytes = 4 << 20;
};

Options Parse(int argc, char **argv)
{
    Options o;
    CommandLine line;
    line.AddValue("nodes", "nodes of the chain", o.nodes);
    line.AddValue("seconds", "simulated seconds of traffic", o.seconds);
    line.AddValue("payload", "bytes of a UDP datagram's payload", o.payloadBytes);
    line.AddValue("mode", "udp or tcp", o.mode);
    line.AddValue("rate", "payload rate of the UDP sender", o.rate);
    line.AddValue("link-rate", "rate of every link", o.linkRate);
    line.AddValue("link-delay", "delay of every link", o.linkDelay);
    line.AddValue("cc", "TypeId of TCP's congestion control", o.congestionControl);
    line.AddValue("buffer", "bytes of TCP's send and receive buffers", o.bufferBytes);
    line.Parse(argc, argv);
    return o;
}

// Links the nodes and routes between n1 and nN; the address of each end.
std::pair<Ipv4Address, Ipv4Address> BuildChain(const Options &o, const NodeContainer &nodes)
{
    InternetStackHelper stack;
    stack.SetIpv6StackInstall(false);
    stack.Install(nodes);
    PointToPointHelper link;
    link.SetDeviceAttribute("DataRate", StringValue(o.linkRate));
    link.SetChannelAttribute("Delay", StringValue(o.linkDelay));
    Ipv4AddressHelper addresses("10.0.0.0", "255.255.255.0");
    std::vector<Ipv4InterfaceContainer> cables;
    for (uint32_t i = 0; i + 1 < o.nodes; i++)
    {
        cables.push_back(addresses.Assign(link.Install(nodes.Get(i), nodes.Get(i + 1))));
        addresses.NewNetwork();
    }
    Ipv4Address first = cables.front().GetAddress(0);
    Ipv4Address last = cables.back().GetAddress(1);
    Ipv4StaticRoutingHelper helper;
    for (uint32_t i = 0; i < o.nodes; i++)
    {
        Ptr<Ipv4StaticRouting> routes = helper.GetStaticRouting(nodes.Get(i)->GetObject<Ipv4>());
        if (i + 1 < o.nodes)
            routes->AddHostRouteTo(last, cables[i].GetAddress(1), i == 0 ? 1 : 2);
        if (i > 0)
            routes->AddHostRouteTo(first, cables[i - 1].GetAddress(0), 1);
    }
    return {first, last};
}

void RunUdp(const Options &o, const NodeContainer &nodes, Ipv4Address to)
{
    UdpServerHelper server(PORT);
    Ptr<UdpServer> sink = DynamicCast<UdpServer>(server.Install(nodes.Get(o.nodes - 1)).Get(0));
    UdpClientHelper client(to, PORT);
    double gapSeconds = o.payloadBytes * 8.0 / DataRate(o.rate).GetBitRate();
    client.SetAttribute("MaxPackets", UintegerValue(0xffffffff));
    client.SetAttribute("Interval", TimeValue(Seconds(gapSeconds)));
    client.SetAttribute("PacketSize", UintegerValue(o.payloadBytes));
    ApplicationContainer sender = client.Install(nodes.Get(0));
    sender.Start(APP_START);
    sender.Stop(APP_START + Seconds(o.seconds));
    Simulator::Run();
    std::printf("received_packets %lu\nlost_packets %u\n", static_cast<unsigned long>(sink->GetReceived()),
                sink->GetLost());
}

void RunTcp(const Options &o, const NodeContainer &nodes, Ipv4Address to)
{
    PacketSinkHelper server("ns3::TcpSocketFactory", InetSocketAddress(Ipv4Address::GetAny(), PORT));
    Ptr<PacketSink> sink = DynamicCast<PacketSink>(server.Install(nodes.Get(o.nodes - 1)).Get(0));
    BulkSendHelper client("ns3::TcpSocketFactory", InetSocketAddress(to, PORT));
    client.SetAttribute("SendSize", UintegerValue(128 << 10));
    ApplicationContainer sender = client.Install(nodes.Get(0));
    sender.Start(APP_START);
    sender.Stop(APP_START + Seconds(o.seconds));
    Simulator::Run();
    std::printf("goodput_bps %.0f\n", sink->GetTotalRx() * 8 / o.seconds);
}
} // namespace

int main(int argc, char **argv)
{
    Options o = Parse(argc, argv);
    Config::SetDefault("ns3::TcpL4Protocol::SocketType", StringValue(o.congestionControl));
    Config::SetDefault("ns3::TcpSocket::SegmentSize", UintegerValue(1448));
    Config::SetDefault("ns3::TcpSocket::SndBufSize", UintegerValue(o.bufferBytes));
    Config::SetDefault("ns3::TcpSocket::RcvBufSize", UintegerValue(o.bufferBytes));
    NodeContainer nodes;
    nodes.Create(o.nodes);
    Ipv4Address last = BuildChain(o, nodes).second;
    Simulator::Stop(APP_START + Seconds(o.seconds + 1));
    if (o.mode == "tcp")
        RunTcp(o, nodes, last);
    else
        RunUdp(o, nodes, last);
    Simulator::Destroy();
    return 0;
}
