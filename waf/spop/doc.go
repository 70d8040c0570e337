// Package spop is the agent's side of the Stream Processing Offload Protocol, version 2.0, in which HAProxy asks agents
// about streams (doc/SPOE.txt of HAProxy): the codec of frames, and a server that answers them.
//
// What a peer sends is bounded before it is believed: the length of a frame before memory is taken for it, the
// number of messages, and every length inside. A peer that stops in the middle of a frame or does not read its
// answers is given up. Frames may be pipelined: a connection has several requests under way, and each is answered
// when it is done. Answers on other connections (async) and fragments of frames are not offered: HAProxy 3.1 has
// done away with both.
//
// Decisions:
//   - The codec is our own. The library negasus/haproxy-spoe-go v1.0.7 works with a HAProxy that means well. Bytes
//     of anybody else end the program: it slices by lengths that it has not compared (frame.Read, message.Decode,
//     typeddata.Decode), asserts types of values that it was sent, takes up to 4 GB for one frame, and none of its
//     goroutines recovers. It limits neither connections nor requests, sets no deadline, and copies every body.
//   - Names and values are slices of the frame. They are good until the handler returns.
package spop
