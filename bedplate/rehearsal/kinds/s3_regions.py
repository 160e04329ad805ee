"""Where S3 stands: the hosted zone of its website endpoints in each region, which is an output of every bucket.

Source: AWS General Reference, "Amazon S3 endpoints and quotas", website endpoints.
"""

from collections.abc import Mapping
from types import MappingProxyType

S3_ZONES: Mapping[str, str] = MappingProxyType(
    {
        "af-south-1": "Z83WF9RJE8B12",
        "ap-east-1": "ZNB98KWMFR0R6",
        "ap-east-2": "Z064739330DAH7WJVOO93",
        "ap-northeast-1": "Z2M4EHUR26P7ZW",
        "ap-northeast-2": "Z3W03O7B5YMIYP",
        "ap-northeast-3": "Z2YQB5RD63NC85",
        "ap-south-1": "Z11RGJOFQNVJUP",
        "ap-south-2": "Z02976202B4EZMXIPMXF7",
        "ap-southeast-1": "Z3O0J2DXBE1FTB",
        "ap-southeast-2": "Z1WCIGYICN2BYD",
        "ap-southeast-3": "Z01846753K324LI26A3VV",
        "ap-southeast-4": "Z0312387243XT5FE14WFO",
        "ap-southeast-5": "Z08660063OXLMA7F1FJHU",
        "ap-southeast-6": "Z05686083R66JX5C163TC",
        "ap-southeast-7": "Z0031014GXUMRZG6I14G",
        "ca-central-1": "Z1QDHH18159H29",
        "ca-west-1": "Z03565811Z33SLEZTHOUL",
        "eu-central-1": "Z21DNDUVLTQW6Q",
        "eu-central-2": "Z030506016YDQGETNASS",
        "eu-north-1": "Z3BAZG2TWCNX0D",
        "eu-south-1": "Z30OZKI7KPW7MI",
        "eu-south-2": "Z0081959F7139GRJC19J",
        "eu-west-1": "Z1BKCTXD74EZPE",
        "eu-west-2": "Z3GKZC51ZF0DB4",
        "eu-west-3": "Z3R1K369G5AVDG",
        "il-central-1": "Z09640613K4A3MN55U7GU",
        "me-central-1": "Z06143092I8HRXZRUZROF",
        "me-south-1": "Z1MPMWCPA7YB62",
        "mx-central-1": "Z057606446ZNVQJJ8WOP",
        "sa-east-1": "Z7KQH4QJS55SO",
        "us-east-1": "Z3AQBSTGFYJSTF",
        "us-east-2": "Z2O1EMRO9K5GLX",
        "us-west-1": "Z2F56UZL2M1ACD",
        "us-west-2": "Z3BJ6K6RIION7M",
    }
)
