package event

import "fmt"

// maxTotal is the largest total that the API takes, in minor units.
const maxTotal = 1_000_000_000_000

func (o OrderPlaced) validate() error {
	switch {
	case o.ID == "":
		return fmt.Errorf("no id")
	case o.CustomerID == "":
		return fmt.Errorf("no customer_id")
	case o.Currency == "":
		return fmt.Errorf("no currency")
	case len(o.Items) == 0:
		return fmt.Errorf("no items")
	case o.CreatedAt.IsZero():
		return fmt.Errorf("no created_at")
	}
	var sum int64
	for i, item := range o.Items {
		if item.SKU == "" {
			return fmt.Errorf("items[%d]: no sku", i)
		}
		// The bounds keep the product and the sum inside an int64.
		if item.Quantity < 1 || item.Quantity > 10_000 || item.UnitPrice < 0 || item.UnitPrice > 1_000_000_000 || i >= 100 {
			return fmt.Errorf("items[%d]: out of range", i)
		}
		sum += item.Quantity * item.UnitPrice
	}
	if sum != o.Total || sum > maxTotal {
		return fmt.Errorf("total %d is not the sum of the items, %d, or is over %d", o.Total, sum, int64(maxTotal))
	}
	return nil
}
