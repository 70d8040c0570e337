package inputs

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/hapsnap/hapsnap/internal/manifests"
)

// faultsOf returns what the API server would refuse in a value that keeps to
// its schema, as far as it reaches the configuration from here: the ports of a
// Service. Ingresses are checked by package routing.
func faultsOf(o manifests.Object, value any) (faults []manifests.FieldError) {
	service, ok := value.(*corev1.Service)
	if !ok {
		return nil
	}
	names := map[string]bool{}
	for i, port := range service.Spec.Ports {
		fault := func(field, message, hint string) {
			faults = append(faults, manifests.FieldError{
				Path: fmt.Sprintf("spec.ports[%d].%s", i, field), Position: o.Position("spec", "ports", i, field),
				Message: message, Hint: hint,
			})
		}
		switch {
		case port.Name == "" && len(service.Spec.Ports) > 1:
			fault("name", "is missing", "each of several ports needs a name")
		case names[port.Name]:
			fault("name", fmt.Sprintf("%q is given twice", port.Name), "give each port its own name")
		case port.Name != "":
			for _, message := range validation.IsDNS1123Label(port.Name) {
				fault("name", fmt.Sprintf("%q is not valid: %s", port.Name, withoutRegex(message)), "")
			}
		}
		names[port.Name] = true
		if len(validation.IsValidPortNum(int(port.Port))) > 0 {
			fault("port", fmt.Sprintf("%d is out of range", port.Port), "use 1 to 65535")
		}
	}
	return faults
}
