# SPDX-License-Identifier: Apache-2.0
"""The manifests of docs/examples hold against the schema of Kubernetes' API."""

import unittest

from islands import ROOT, main

import yaml  # it comes with transformers, and with kubernetes-validate

try:
    import kubernetes_validate
except ImportError:
    kubernetes_validate = None

VERSION = "1.29"  # the first with sidecars that are on by default


@unittest.skipIf(kubernetes_validate is None, "kubernetes-validate is not installed; pip install kubernetes-validate")
class Manifests(unittest.TestCase):
    def documents(self):
        return list(yaml.safe_load_all((ROOT / "docs/examples/island.yaml").read_text()))

    def test_each_holds(self):
        kinds = []
        for document in self.documents():
            kubernetes_validate.validate(document, VERSION, strict=True)
            kinds.append(document["kind"])
        self.assertEqual(kinds, ["Service", "PersistentVolumeClaim", "Job", "Job"])

    def test_what_they_call_each_other_is_there(self):
        service, claim, first, more = self.documents()
        for job in (first, more):
            template = job["spec"]["template"]
            self.assertEqual(template["metadata"]["labels"], service["spec"]["selector"])
            self.assertEqual(template["spec"]["subdomain"], service["metadata"]["name"])
            ranks = template["spec"]["containers"][0]
            endpoint = f"{first['spec']['template']['spec']['hostname']}.{service['metadata']['name']}:29500"
            self.assertIn(f"--rdzv-endpoint={endpoint}", ranks["args"])
            self.assertIn(f"--nnodes={1 + more['spec']['parallelism']}", ranks["command"])
        volumes = {one["name"]: one for one in first["spec"]["template"]["spec"]["volumes"]}
        self.assertEqual(volumes["island"]["persistentVolumeClaim"]["claimName"], claim["metadata"]["name"])
        wrong = dict(claim, spec={"accessModes": "ReadWriteOnce"})
        with self.assertRaises(kubernetes_validate.ValidationError):
            kubernetes_validate.validate(wrong, VERSION, strict=True)


if __name__ == "__main__":
    main()
