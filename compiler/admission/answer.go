package admission

import (
	"fmt"
	"net/http"
	"strings"
	"unicode"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hapsnap/hapsnap/compiler/diag"
)

// What a response holds at most. The API server cuts warnings of more than 256
// characters once there are more than 4,096 of them in all.
const (
	maxFaults       = 20
	maxWarnings     = 10
	maxWarningRunes = 256
)

// unchecked begins what is said if there is no verdict.
const unchecked = "hapsnap could not check this: "

// answer is the response for a verdict.
func answer(uid types.UID, v Verdict) *admissionv1.AdmissionResponse {
	response := &admissionv1.AdmissionResponse{UID: uid, Allowed: len(v.Faults) == 0, Warnings: warnings(v.Warnings)}
	if !response.Allowed {
		response.Result = denial(metav1.StatusReasonForbidden, http.StatusForbidden, faultsText(v.Faults))
		response.Result.Details = &metav1.StatusDetails{Causes: causes(v.Faults)}
	}
	return response
}

// unjudged is the response if there is no verdict.
func unjudged(uid types.UID, closed bool, reason string) *admissionv1.AdmissionResponse {
	if closed {
		return &admissionv1.AdmissionResponse{
			UID:    uid,
			Result: denial(metav1.StatusReasonServiceUnavailable, http.StatusServiceUnavailable, unchecked+reason),
		}
	}
	return &admissionv1.AdmissionResponse{UID: uid, Allowed: true, Warnings: []string{oneLine("allowed, though " + unchecked + reason)}}
}

// askAgain is the response if there would be a verdict later. Clients of the API server
// that follow its conventions, such as kubectl, try again by themselves.
func askAgain(uid types.UID, reason string) *admissionv1.AdmissionResponse {
	status := denial(metav1.StatusReasonTooManyRequests, http.StatusTooManyRequests, unchecked+reason+"; try again")
	status.Details = &metav1.StatusDetails{RetryAfterSeconds: 1}
	return &admissionv1.AdmissionResponse{UID: uid, Result: status}
}

func denial(reason metav1.StatusReason, code int32, message string) *metav1.Status {
	return &metav1.Status{Status: metav1.StatusFailure, Reason: reason, Code: code, Message: message}
}

// faultsText is what a person reads who is denied: a fault to a line, the field
// first, and below it what to do.
func faultsText(faults []diag.Diagnostic) string {
	var lines []string
	for _, f := range faults[:min(len(faults), maxFaults)] {
		lines = append(lines, f.String())
	}
	if more := len(faults) - maxFaults; more > 0 {
		lines = append(lines, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(lines, "\n")
}

// causes are the faults for programs.
func causes(faults []diag.Diagnostic) []metav1.StatusCause {
	var out []metav1.StatusCause
	for _, f := range faults[:min(len(faults), maxFaults)] {
		out = append(out, metav1.StatusCause{Type: metav1.CauseTypeFieldValueInvalid, Field: f.Position.Field, Message: f.Message})
	}
	return out
}

// warnings are on one line each, since they travel as headers.
func warnings(found []diag.Diagnostic) []string {
	var out []string
	for _, w := range found[:min(len(found), maxWarnings)] {
		w.Severity = diag.Error // who shows it says that it is a warning
		out = append(out, oneLine(strings.Replace(w.String(), "\n\thint: ", "; ", 1)))
	}
	if more := len(found) - maxWarnings; more > 0 {
		out = append(out, fmt.Sprintf("and %d more", more))
	}
	return out
}

// oneLine makes a warning fit for a header: without control characters, which
// the API server drops it for, and not too long.
func oneLine(s string) string {
	runes := []rune(strings.Join(strings.Fields(s), " "))
	for i, r := range runes {
		if unicode.IsControl(r) {
			runes[i] = ' '
		}
	}
	if len(runes) > maxWarningRunes {
		runes = append(runes[:maxWarningRunes-1], '…')
	}
	return string(runes)
}

// withoutKey is the fault of a ConfigMap that holds no configuration.
func withoutKey() []diag.Diagnostic {
	return []diag.Diagnostic{{
		Severity: diag.Error, Position: diag.Position{Field: "data"},
		Message: "there is no key " + ConfigKey, Hint: "put the CompilerConfig there",
	}}
}
