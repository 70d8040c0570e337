// Package agent inspects requests for HAProxy with the engine Coraza and the OWASP Core Rule Set.
//
// HAProxy sends each request as a message of package spop, and with it the text of the policy that it is to be inspected by. So
// the agent has no configuration of its own: what is inspected and how stands in the snapshot that a worker runs, and
// two workers with two snapshots get what each of them asks for. The agent answers with an action:
//
//	allow   the score stays below the threshold
//	detect  it reaches the threshold, and the engine of the policy is detect
//	deny    it reaches the threshold, and the engine is block
//	error   the request was not inspected
//
// What becomes of an error is for HAProxy to say. It is the answer to a policy that cannot be read, to a request
// whose inspection takes too long or panics, and to one too many; with [Options.ExactRules] also to a version of the
// rules that the agent does not carry.
//
// Responses are not inspected: the message has none.
//
// Decisions:
//   - The engine always runs as if it blocked. Detecting and blocking are then one way through the rules, so that what
//     was found while detecting is what will be denied.
//   - Exclusions are expanded to ids of rules here, among those of detection alone. A tag that the evaluation of the
//     score has too does not switch that off.
//   - A request that panics costs itself. Its transaction is not used again.
package agent
