// Package policy has the text that says how a request is inspected: the engine, the paranoia level, the
// threshold, and what is excluded. A compiler writes it into the configuration of HAProxy, HAProxy sends it with
// each request, and an agent reads it.
//
// Decisions:
//   - The text is JSON in one canonical form, so that equal policies are equal texts, and an agent prepares each once.
//   - A policy holds nothing that the language of the rules (SecLang) could read as more than a number, a tag or
//     a target. What is allowed in each is a list of characters that has no quote, blank, comma, bar or backslash.
//     So a tenant's policy cannot become a directive, whichever way an agent writes it down.
//   - Exclusions name detection rules of requests only, [FirstRule] to [LastRule]. The rules that set the engine up
//     and those that add up the score are out of reach.
//   - The package knows neither the rules nor an engine: the compiler imports it, and must not carry them.
package policy
